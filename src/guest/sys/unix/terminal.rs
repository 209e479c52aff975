//! The terminal that podlink was started from.

/// Takes the standard streams of the parent's terminal where podlink was given none: nothing to do here, where every
/// program is given its streams.
pub const fn use_terminal() {}
