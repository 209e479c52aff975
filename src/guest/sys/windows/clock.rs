//! The guest's clock.

use std::io;

use crate::protocol::{GuestTime, TimeSet};

/// Reads it.
pub(in crate::guest) fn time() -> GuestTime {
    todo!()
}

/// What the clock is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Step {
    /// This time, in nanoseconds since 1970.
    To(i64),
    /// So many nanoseconds later than it is, or earlier.
    By(i64),
}

/// Steps the clock to a time within `bounds`.
///
/// # Errors
/// `PermissionDenied` without the right to; `InvalidInput` for a time that is out of bounds or that no clock takes.
pub(in crate::guest) fn step_time(_step: Step, _bounds: std::ops::Range<i64>) -> io::Result<TimeSet> {
    todo!()
}
