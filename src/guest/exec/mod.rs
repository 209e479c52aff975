//! `/exec`: not offered by this build.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};

use super::{GuestError, extract::JsonBytes, request_id::RequestId, state::AppState};
use crate::protocol::ErrorCode;

/// The bounds of calls.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "no call is run yet")]
pub(crate) struct Settings {
    /// Calls that run at one time.
    pub(crate) slots: usize,
    /// Calls that may wait for a slot.
    pub(crate) queue: usize,
    /// Most that a call waits for a slot.
    pub(crate) queue_wait: Duration,
    /// Most that a call may ask for.
    pub(crate) timeout_cap: Duration,
    /// Between asking a process to end and ending it.
    pub(crate) kill_grace: Duration,
    /// How long a call with a caller's id goes on without a caller.
    pub(crate) orphan_grace: Duration,
    /// Where the files of runs lie.
    pub(crate) runs_dir: PathBuf,
}

/// The calls of one agent.
#[derive(Debug)]
pub(crate) struct Calls;

impl Calls {
    #[expect(clippy::unnecessary_wraps, reason = "to be replaced")]
    pub(crate) fn new(_settings: Settings, _agent_id: String) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self))
    }

    pub(crate) async fn stop(&self, _drain: Duration) {}
}

pub(crate) async fn run(
    State(_state): State<AppState>,
    Extension(_id): Extension<RequestId>,
    _body: JsonBytes,
) -> Result<Response, GuestError> {
    Err(GuestError::new(ErrorCode::Unsupported, "this build runs no calls"))
}

pub(crate) async fn cancel(
    State(_state): State<AppState>,
    Extension(_id): Extension<RequestId>,
    Path(_request_id): Path<String>,
) -> Result<Response, GuestError> {
    Err(GuestError::new(ErrorCode::Unsupported, "this build runs no calls"))
}
