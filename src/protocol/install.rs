//! How the agent was put into its guest, and how it came to run: part of `GET /whoami`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What started the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunMode {
    /// Somebody by hand, or a program of the guest's own.
    Manual,
    /// The log-on of a user (Windows: the Run key) or a user's service manager (systemd `--user`).
    Session,
    /// The system's service manager, before any log-on.
    Service,
    /// An agent that does not tell, or a way that this build does not know; never sent.
    #[default]
    #[serde(other)]
    Unknown,
}

/// How far one step of the installation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepState {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// As it should be, whoever made it so.
    Done,
    /// This system has nothing of the kind.
    Unavailable,
    /// It could not be done.
    Failed,
    /// A state that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

/// One step of the installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstallStep {
    /// Its name: `firewall`, `exe`, `token`, `hook 10-name.cmd`, …
    pub name: String,
    /// How far it has come.
    pub state: StepState,
    /// Whether the installation fails with it.
    pub required: bool,
    /// Why it is not done, or what is to be known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its state was last set, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// The installation that an agent belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstallReport {
    /// Whether all that is required is done.
    pub complete: bool,
    /// How the agent is started from now on.
    pub mode: RunMode,
    /// The version that was installed.
    pub version: String,
    /// In the order in which they are taken.
    pub steps: Vec<InstallStep>,
}
