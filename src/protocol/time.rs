//! `/system/time`: the guest's clocks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The guest's time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeZone {
    /// Its name, where it has one: `Europe/Berlin`, on Windows `W. Europe Standard Time`.
    #[serde(default)]
    pub name: Option<String>,
    /// Seconds that local time is ahead of UTC, now.
    #[serde(default)]
    pub utc_offset_sec: i32,
}

/// `GET /system/time`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestTime {
    /// Nanoseconds since 1970, UTC, as a whole number: readers that take it for a float lose a few hundred.
    pub unix_ns: i64,
    /// The same, RFC 3339.
    pub utc: String,
    /// Nanoseconds of the clock that never jumps and stands still while the guest sleeps.
    pub monotonic_ns: u64,
    /// Nanoseconds since the guest's start, those asleep included.
    pub boot_ns: u64,
    /// Where the guest thinks it is.
    pub timezone: TimeZone,
    /// Whether the guest keeps its clock right by the network, as far as its kernel knows; null where that cannot be told.
    #[serde(default)]
    pub ntp_synchronized: Option<bool>,
    /// Whether the agent's account may set the clock, as far as it can be told without trying.
    #[serde(default)]
    pub may_set: bool,
}

/// `POST /system/time`: exactly one of the three.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetTime {
    /// The time to set: nanoseconds since 1970, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<i64>,
    /// The time to set, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// By how many nanoseconds to put the clock forward, back where negative: how long the request is on its way does not
    /// matter then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeSet {
    /// The clock right before, nanoseconds since 1970.
    pub before_unix_ns: i64,
    /// The clock right after.
    pub after_unix_ns: i64,
    /// By how many nanoseconds it was stepped.
    pub step_ns: i64,
}
