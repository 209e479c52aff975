//! `POST /exec` and `DELETE /exec/{request-id}`.

use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};

use super::{
    GuestError,
    calls::{Digest, check},
    extract::{JsonBytes, parse_json},
    request_id::RequestId,
    state::AppState,
};
use crate::protocol::{ErrorCode, ExecRequest, HEADER_IF_AGENT};

/// `POST /exec`.
pub(super) async fn run(
    State(state): State<AppState>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, GuestError> {
    let calls = state.calls();
    meant_for_this_agent(&headers, calls.agent_id())?;
    let digest = Digest::of(&body);
    let request: ExecRequest = parse_json(&body)?;
    drop(body);
    let spec = check(request, calls.settings())?;
    let finished = calls.call(&request_id, digest, spec).await?;
    Ok(finished.into_response())
}

/// `DELETE /exec/{request-id}`: 204 once the call has ended.
pub(super) async fn cancel(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, GuestError> {
    let Path(id) = id.map_err(|error| GuestError::new(ErrorCode::BadRequest, error.body_text()))?;
    if state.calls().cancel(&id).await {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(GuestError::new(ErrorCode::NotFound, "no call with this request id is known")
            .hint("only calls whose X-Request-Id was given by their caller can be named, for 10 minutes"))
    }
}

/// A retry names the agent that its first try spoke to: one that started since knows nothing of that try.
fn meant_for_this_agent(headers: &HeaderMap, agent_id: &str) -> Result<(), GuestError> {
    match headers.get(HEADER_IF_AGENT) {
        Some(wanted) if wanted.as_bytes() != agent_id.as_bytes() => {
            Err(GuestError::new(ErrorCode::Conflict, "the agent that the first try spoke to is gone; nothing was run")
                .hint("whether the first try ran to its end is not known"))
        }
        _ => Ok(()),
    }
}
