//! `GET /system/processes` and `GET /system/sockets`: the whole guest at one moment.

use std::{io, sync::Arc};

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

use super::{GuestError, snapshots::NoSnapshot, state::AppState, sys};
use crate::protocol::ErrorCode;

/// `GET /system/processes`.
pub(super) async fn processes(State(state): State<AppState>) -> Result<Response, GuestError> {
    let patience = state.config().deadlines.snapshot;
    answer(json(state.looks().processes.json(patience, sys::system_processes).await))
}

/// `GET /system/sockets`.
pub(super) async fn sockets(State(state): State<AppState>) -> Result<Response, GuestError> {
    let patience = state.config().deadlines.snapshot;
    answer(json(state.looks().sockets.json(patience, sys::system_sockets).await))
}

/// The answer with this JSON.
pub(super) fn answer(json: Result<Bytes, GuestError>) -> Result<Response, GuestError> {
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json?).into_response())
}

/// What was seen, or why it was not.
pub(super) fn json(taken: Result<Bytes, NoSnapshot>) -> Result<Bytes, GuestError> {
    match taken {
        Ok(json) => Ok(json),
        Err(NoSnapshot::TooLong) => {
            Err(GuestError::new(ErrorCode::QueueFull, "a look at the system is under way and does not end")
                .hint("a process that hangs in the guest's kernel may hold it up; try again later")
                .retry_after(1))
        }
        Err(NoSnapshot::Failed(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err(GuestError::new(ErrorCode::Unsupported, "this guest's system shows nothing of it in /proc"))
        }
        Err(NoSnapshot::Failed(error)) => {
            Err(GuestError::new(ErrorCode::InternalError, "the system could not be looked at")
                .hint("the agent's log tells more, under this request's id")
                .caused_by(anyhow::Error::new(Shown(error))))
        }
    }
}

/// An error that several callers were given.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shown(Arc<io::Error>);
