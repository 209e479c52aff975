//! `GET /system/time` and `POST /system/time`: the guest's clocks, and setting the one that may jump.
//!
//! Nothing of the agent goes by that one: time-outs, drains and what is kept for a while go by the clock that never jumps.

use std::io;

use axum::{Extension, Json};

use super::{GuestError, audit, extract::JsonBytes, extract::parse_json, sys};
use crate::protocol::{ErrorCode, GuestTime, SetTime, TimeSet};

/// Times that a clock may be set to, in nanoseconds since 1970: from 2000 to 2200, beyond which it is a mistake.
const BOUNDS: std::ops::Range<i64> = 946_684_800_000_000_000..7_258_118_400_000_000_000;

/// `GET /system/time`. Nothing lies between the reading of the clocks and the answer: no thread, no shared look.
pub(super) async fn get() -> Json<GuestTime> {
    Json(sys::time())
}

/// `POST /system/time`.
pub(super) async fn set(
    Extension(entry): Extension<audit::Entry>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<TimeSet>, GuestError> {
    let step = step_of(&parse_json(&body)?)?;
    match sys::step_time(step, BOUNDS) {
        Ok(set) => {
            entry.say(format!("by {} ms", set.step_ns / 1_000_000));
            tracing::info!(step_ms = set.step_ns / 1_000_000, "the clock was set");
            Ok(Json(set))
        }
        Err(error) => Err(refusal(&error)),
    }
}

fn step_of(request: &SetTime) -> Result<sys::Step, GuestError> {
    let bad = |detail: String| {
        GuestError::new(ErrorCode::BadRequest, detail)
            .hint("give exactly one of unix_ns, time (RFC 3339, with an offset or Z) and offset_ns")
    };
    match (request.unix_ns, &request.time, request.offset_ns) {
        (Some(time), None, None) => Ok(sys::Step::To(time)),
        (None, None, Some(offset)) => Ok(sys::Step::By(offset)),
        (None, Some(text), None) => {
            let time: jiff::Timestamp = text.parse().map_err(|error| bad(format!("time is no RFC 3339: {error}")))?;
            // what does not fit is far out of bounds
            Ok(sys::Step::To(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)))
        }
        (None, None, None) => Err(bad("the request names no time".to_owned())),
        _ => Err(bad("the request names more than one time".to_owned())),
    }
}

fn refusal(error: &io::Error) -> GuestError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            GuestError::new(ErrorCode::NotPermitted, "the agent's account may not set the clock")
                .hint("run the agent as root, or give it the capability CAP_SYS_TIME; a container has it only where its host gives it")
        }
        io::ErrorKind::InvalidInput => {
            GuestError::new(ErrorCode::BadRequest, "the clock would stand before 2000, or after 2199, or before the guest's start")
        }
        io::ErrorKind::Unsupported => GuestError::new(ErrorCode::Unsupported, "this system's clock cannot be set"),
        _ => GuestError::new(ErrorCode::InternalError, format!("the clock could not be set: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_time_is_taken() {
        let of = |text: &str| step_of(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"unix_ns": 5}"#).unwrap(), sys::Step::To(5));
        assert_eq!(of(r#"{"offset_ns": -5}"#).unwrap(), sys::Step::By(-5));
        assert_eq!(of(r#"{"time": "1970-01-01T01:00:00.000000007+01:00"}"#).unwrap(), sys::Step::To(7));
        assert_eq!(of(r#"{"time": "9999-01-01T00:00:00Z"}"#).unwrap(), sys::Step::To(i64::MAX));
        for bad in [
            "{}",
            r#"{"unix_ns": 1, "offset_ns": 1}"#,
            r#"{"time": "yesterday"}"#,
            r#"{"time": "2026-11-29T14:00:00"}"#,
        ] {
            assert_eq!(of(bad).unwrap_err().code(), ErrorCode::BadRequest, "{bad}");
        }
    }
}
