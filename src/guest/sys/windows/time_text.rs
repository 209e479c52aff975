//! Times as they stand in answers: RFC 3339 to the millisecond.

use jiff::Timestamp;

/// This moment.
pub(super) fn now() -> String {
    to_milliseconds(Timestamp::now())
}

/// A moment, less what is below a millisecond.
pub(super) fn to_milliseconds(time: Timestamp) -> String {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time).to_string()
}
