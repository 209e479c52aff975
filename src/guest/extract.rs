//! Bodies, read under the limits of the protocol and refused in its own form.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{
        FromRequest, Path, Query, Request,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderMap, header},
};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::{Deadlines, GuestError, state::AppState};
use crate::protocol::{ErrorCode, MAX_JSON_BODY};

/// The whole body of a JSON request: content type, size and pace have been checked, the text has not been parsed.
#[derive(Debug)]
pub(super) struct JsonBytes(pub Bytes);

impl FromRequest<AppState> for JsonBytes {
    type Rejection = GuestError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, GuestError> {
        check_content_type(request.headers())?;
        check_content_length(request.headers())?;
        read(request.into_body(), MAX_JSON_BODY, &state.config().deadlines).await.map(Self)
    }
}

/// Absent, or `application/json` whatever its parameters: a web page cannot send that without asking first.
fn check_content_type(headers: &HeaderMap) -> Result<(), GuestError> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, second) = (values.next(), values.next());
    let is_json = first.is_none_or(|value| {
        let essence = value.as_bytes().split(|c| *c == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    if is_json && second.is_none() {
        return Ok(());
    }
    Err(GuestError::new(ErrorCode::UnsupportedMediaType, "the body's content type is not application/json")
        .hint("send Content-Type: application/json, or none"))
}

/// What is said to be too large is refused before any of it is read.
fn check_content_length(headers: &HeaderMap) -> Result<(), GuestError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_JSON_BODY as u64) { Err(too_large(MAX_JSON_BODY)) } else { Ok(()) }
}

fn too_large(limit: usize) -> GuestError {
    GuestError::new(ErrorCode::TooLarge, format!("the body is larger than {limit} bytes")).closing()
}

async fn read(mut body: Body, limit: usize, deadlines: &Deadlines) -> Result<Bytes, GuestError> {
    let end = Instant::now() + deadlines.body_total;
    let mut whole = Vec::new();
    loop {
        let next = timeout_at(end.min(Instant::now() + deadlines.body_stall), body.frame()).await;
        let frame = match next {
            Ok(None) => return Ok(whole.into()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(GuestError::new(ErrorCode::BadRequest, "the body ended early or is not well-formed")
                    .caused_by(error)
                    .closing());
            }
            Err(_) => {
                return Err(too_slow(if Instant::now() < end { deadlines.body_stall } else { deadlines.body_total }));
            }
        };
        if let Some(data) = frame.data_ref() {
            if data.len() > limit - whole.len() {
                return Err(too_large(limit));
            }
            whole.extend_from_slice(data);
        }
    }
}

fn too_slow(limit: Duration) -> GuestError {
    GuestError::new(ErrorCode::Timeout, format!("the body did not arrive: waited {limit:?}")).closing()
}

/// Parses a JSON body; what is wrong with it is told with its place.
///
/// # Errors
/// `bad_request`.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, GuestError> {
    // the reader of structures would take a list of their fields as well
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(GuestError::new(ErrorCode::BadRequest, "the body: expected a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| GuestError::new(ErrorCode::BadRequest, format!("the body: {error}")))
}

/// The name in a path.
pub(super) fn named(name: Result<Path<String>, PathRejection>) -> Result<String, GuestError> {
    name.map(|Path(name)| name).map_err(|error| GuestError::new(ErrorCode::BadRequest, error.body_text()))
}

/// What stands behind the `?`.
pub(super) fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, GuestError> {
    query.map(|Query(query)| query).map_err(|error| GuestError::new(ErrorCode::BadRequest, error.body_text()))
}
