//! What a child starts with.

use std::process::ExitStatus;

/// Nothing bounds the handles of a process here.
pub(crate) const fn raise_file_limit() {}

/// Nothing is killed by a signal here.
pub(crate) const fn leader_signal(_status: ExitStatus) -> Option<i32> {
    None
}
