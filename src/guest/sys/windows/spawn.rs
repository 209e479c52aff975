//! What a child starts with.

/// Nothing bounds the handles of a process here.
pub(crate) const fn raise_file_limit() {}
