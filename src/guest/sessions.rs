//! `/sessions`: calls that run one after the other.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};

use super::{GuestError, calls, extract::named, state::AppState};
use crate::protocol::{ErrorCode, SessionEnded, SessionList};

/// `GET /sessions`.
pub(super) async fn list(State(state): State<AppState>) -> Json<SessionList> {
    Json(SessionList { sessions: state.calls().sessions() })
}

/// `DELETE /sessions/{name}`: all of its calls, running and queued.
pub(super) async fn end(
    State(state): State<AppState>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<SessionEnded>, GuestError> {
    let name = named(name)?;
    calls::session(&name)?;
    match state.calls().end_session(&name).await {
        0 => Err(GuestError::new(ErrorCode::NotFound, "nothing runs or waits in a session of this name")),
        ended => Ok(Json(SessionEnded { ended })),
    }
}
