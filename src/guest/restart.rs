//! `POST /agent/restart`: the agent ends once its calls have their answers, and whoever keeps it alive starts it again.
//!
//! The asking call may be one of those: so a script can have the agent that runs it restarted, to take up an update say,
//! and its answer is not lost.

use axum::{Extension, Json, extract::State, http::StatusCode};

use super::{GuestError, Lead, audit, extract::JsonBytes, state::AppState};
use crate::protocol::{ErrorCode, RestartAccepted};

/// The exit code of an agent that is to be started again: `EX_TEMPFAIL`, "try again".
pub const RESTART_CODE: u8 = 75;

/// Who starts an agent again that ends with [`RESTART_CODE`].
#[derive(Debug, Clone, Default)]
pub enum Keeper {
    /// Nobody.
    #[default]
    Nobody,
    /// The system's service manager.
    Manager,
    /// A supervisor, for as long as it lives.
    Supervisor(Lead),
}

impl Keeper {
    fn is_there(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Manager => true,
            Self::Supervisor(lead) => lead.is_held(),
        }
    }
}

/// `POST /agent/restart`. Its body says nothing.
pub(super) async fn ask(
    State(state): State<AppState>,
    Extension(entry): Extension<audit::Entry>,
    JsonBytes(_): JsonBytes,
) -> Result<(StatusCode, Json<RestartAccepted>), GuestError> {
    if !state.config().keeper.is_there() {
        return Err(GuestError::new(ErrorCode::Unsupported, "nothing would start this agent again").hint(
            "end it and start it as it was started before; one of `podlink agent install` or `podlink agent serve \
             --supervise` can be restarted",
        ));
    }
    if !state.ask_for_restart() {
        return Err(GuestError::new(ErrorCode::AgentStopping, "the agent is going down already, and for good"));
    }
    entry.say(format!("agent {}", state.agent_id()));
    let drain_ms = u64::try_from(state.config().drain.as_millis()).unwrap_or(u64::MAX);
    Ok((StatusCode::ACCEPTED, Json(RestartAccepted { agent_id: state.agent_id().to_owned(), drain_ms })))
}
