//! `GET /health`: readiness, the one source of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far the guest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// The agent runs and has no token yet.
    WaitingForToken,
    /// The guest's installation has not finished: a gate does not hold.
    Installing,
    /// The guest's installation ended in failure.
    InstallFailed,
    /// Calls are served.
    Ready,
    /// The agent is going down.
    Draining,
    /// A stage that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

impl Stage {
    /// The stage as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WaitingForToken => "waiting_for_token",
            Self::Installing => "installing",
            Self::InstallFailed => "install_failed",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Unknown => "unknown",
        }
    }

    /// Whether an agent in this stage has a token, and so can prove it. One whose installation has failed may have been
    /// given none.
    pub const fn implies_token(self) -> bool {
        !matches!(self, Self::WaitingForToken | Self::InstallFailed)
    }
}

/// The answer of `/health`, with 200 (ready) and with 503 (not yet).
///
/// Every field but `ok` may be missing from agents of another kind, so a reader gets defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// True exactly with status 200.
    pub ok: bool,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The wire's version.
    #[serde(default)]
    pub protocol: u32,
    /// When the agent started, RFC 3339 in UTC.
    #[serde(default)]
    pub started_at: String,
    /// Milliseconds since then.
    #[serde(default)]
    pub uptime_ms: u64,
    /// The guest's operating system, as Rust names it (`windows`, `linux`, `macos`, …).
    #[serde(default)]
    pub os: String,
    /// The guest's processor architecture, as Rust names it (`x86_64`, `aarch64`, …).
    #[serde(default)]
    pub arch: String,
    /// New at each start of the agent.
    #[serde(default)]
    pub agent_id: String,
    /// How far the guest has come.
    #[serde(default = "unknown_stage")]
    pub stage: Stage,
    /// The gates that do not hold yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
}

const fn unknown_stage() -> Stage {
    Stage::Unknown
}
