//! The agent's own restart.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Ends the agent once its calls have their answers, to be started again.
pub const PATH_AGENT_RESTART: &str = "/agent/restart";

/// `POST /agent/restart`: it is under way. Another `agent_id` in `/health` tells that it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestartAccepted {
    /// The agent that ends.
    pub agent_id: String,
    /// Milliseconds that running calls still have.
    #[serde(default)]
    pub drain_ms: u64,
}
