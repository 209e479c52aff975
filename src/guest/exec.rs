//! `POST /exec` and `DELETE /exec/{request-id}`.

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};

use super::{
    GuestError, audit,
    calls::{Digest, Form, check},
    extract::{JsonBytes, named, parse_json},
    process::Claim,
    request_id::RequestId,
    state::AppState,
    streams::{self, Manner},
};
use crate::protocol::{ErrorCode, ExecRequest, HEADER_IF_AGENT, Started};

/// `POST /exec`.
pub(super) async fn run(
    State(state): State<AppState>,
    Extension(request_id): Extension<RequestId>,
    Extension(entry): Extension<audit::Entry>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, GuestError> {
    let calls = state.calls();
    meant_for_this_agent(&headers, calls.agent_id())?;
    let form = streams::wanted(&headers).unwrap_or(Form::Buffered);
    let digest = Digest::of(form.as_str(), &body);
    let request: ExecRequest = parse_json(&body)?;
    drop(body);
    let detach = request.detach;
    let checked = check(request, None, form, calls.settings())?;
    let joined = calls.begin(&request_id, &entry, digest, checked)?;
    if form == Form::Buffered && !detach {
        return Ok(joined.finished().await.into_response());
    }
    // a call that came to nothing is told by its status, so the head waits for the start
    if detach {
        let start = match joined.started_or_in_line().await {
            Ok(start) => start,
            Err(finished) => return Ok(finished.into_response()),
        };
        let started = Started { process_id: joined.process_id().to_owned(), pid: start.map(|start| start.pid) };
        return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
    }
    if let Err(finished) = joined.started().await {
        return Ok(finished.into_response());
    }
    let reader = joined.reader(Some(0), Claim::Caller)?;
    let keep_alive = calls.settings().stream_keep_alive;
    Ok(streams::answer(joined, reader, Manner { form, follow: true, keep_alive }))
}

/// `DELETE /exec/{request-id}`: 204 once the call has ended.
pub(super) async fn cancel(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, GuestError> {
    let id = named(id)?;
    cancelled(&state, &id).await
}

/// `DELETE /exec/attach`: a request id may be just that.
pub(super) async fn cancel_attach(State(state): State<AppState>) -> Result<Response, GuestError> {
    cancelled(&state, "attach").await
}

async fn cancelled(state: &AppState, id: &str) -> Result<Response, GuestError> {
    if state.calls().cancel(id).await {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(GuestError::new(ErrorCode::NotFound, "no call with this request id is known")
            .hint("only calls whose X-Request-Id was given by their caller can be named, for 10 minutes"))
    }
}

/// A retry names the agent that its first try spoke to: one that started since knows nothing of that try.
pub(super) fn meant_for_this_agent(headers: &HeaderMap, agent_id: &str) -> Result<(), GuestError> {
    match headers.get(HEADER_IF_AGENT) {
        Some(wanted) if wanted.as_bytes() != agent_id.as_bytes() => {
            Err(GuestError::new(ErrorCode::Conflict, "the agent that the first try spoke to is gone; nothing was run")
                .hint("whether the first try ran to its end is not known"))
        }
        _ => Ok(()),
    }
}
