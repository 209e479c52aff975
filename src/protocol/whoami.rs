//! `GET /whoami`: the authorized call that does nothing but tell who answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{InstallReport, RunMode};

/// Who the agent is and what it allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// The account that calls run as.
    pub user: String,
    /// Windows: the session (0 is the services'). Unix: the session's leader.
    pub session_id: u32,
    /// Whether that session has a desktop or terminal a person could see.
    pub interactive: bool,
    /// Whether calls run with the machine's full rights (root, elevated).
    pub elevated: bool,
    /// As in `/health`.
    pub agent_id: String,
    /// The agent's version.
    pub version: String,
    /// What this agent can do beyond the basics (`exec.request_id`, …).
    #[serde(default)]
    pub features: Vec<String>,
    /// The agent's limits.
    pub limits: Limits,
    /// What started it.
    #[serde(default)]
    pub mode: RunMode,
    /// The installation that it belongs to, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallReport>,
}

/// The bounds that the agent was started with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Limits {
    /// Calls that run at one time.
    pub exec_slots: u32,
    /// Calls that may wait for a slot.
    pub exec_queue: u32,
    /// Most seconds a call waits for a slot.
    pub exec_queue_wait_sec: u64,
    /// Most seconds a call waits for its turn in a session.
    pub exec_session_wait_sec: u64,
    /// Detached and attached calls at one time.
    pub exec_jobs: u32,
    /// Bytes kept of the output of each attached or detached call; of streamed ones it is more.
    pub exec_ring_bytes: u64,
    /// Most seconds that a buffered call may ask for.
    pub exec_timeout_cap_sec: u64,
    /// Most bytes of a JSON body.
    pub max_json_body: u64,
    /// Most bytes of each output stream that a call may ask to be kept.
    pub max_output_bytes: u64,
}
