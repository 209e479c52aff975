//! `/processes` and `/sessions`: what the agent started, and what waits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ErrorBody, ExecResult};

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessState {
    /// It waits for its turn in its session, or for a slot.
    Queued,
    /// Its program runs.
    Running,
    /// Its program has ended, or was never started.
    Exited,
    /// A state that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

/// What becomes of a call's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessMode {
    /// It is the answer of `POST /exec`.
    Buffered,
    /// It goes to the caller as it comes; a slow caller slows the program.
    Streamed,
    /// The same over a WebSocket, with stdin.
    Attached,
    /// It goes into a ring; nobody need be there.
    Detached,
    /// A mode that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

impl ProcessMode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Streamed => "streamed",
            Self::Attached => "attached",
            Self::Detached => "detached",
            Self::Unknown => "unknown",
        }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// The agent's name for it.
    pub process_id: String,
    /// How far it has come.
    pub state: ProcessState,
    /// What becomes of its output.
    pub mode: ProcessMode,
    /// The program's number in the guest, once it has been started.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The program and its arguments, where it is no script; of very long ones the first 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// SHA-256 of the script in hex, where it is one: scripts may hold secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_sha256: Option<String>,
    /// The session that it belongs to.
    #[serde(default)]
    pub session: Option<String>,
    /// Whether it has a terminal.
    #[serde(default)]
    pub pty: bool,
    /// Whether it runs and what it reads can be written to: `POST /processes/{id}/stdin`, or attached.
    #[serde(default)]
    pub stdin_open: bool,
    /// The id of the request that made it.
    pub request_id: String,
    /// When the request came, RFC 3339.
    pub created_at: String,
    /// When the program was started.
    #[serde(default)]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// Bytes that came on stdout and stderr so far; of buffered calls only once they have ended.
    #[serde(default)]
    pub output_bytes: u64,
    /// The first offset from which its output can still be had; equal to `output_bytes` where none is kept.
    #[serde(default)]
    pub output_from: u64,
    /// Once it has ended by itself or by its time-out: the result, without the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<ExecResult>>,
    /// Once it has ended in another way: what `POST /exec` answered, without the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<ErrorBody>>,
}

/// `GET /processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// In the order in which they were asked for.
    pub processes: Vec<ProcessInfo>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    /// Its name.
    pub name: String,
    /// The call whose turn it is.
    #[serde(default)]
    pub running: Option<ProcessInfo>,
    /// Those that wait, in order.
    #[serde(default)]
    pub queued: Vec<ProcessInfo>,
}

/// `GET /sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// Sessions in which something runs or waits, by name.
    pub sessions: Vec<SessionInfo>,
}

/// `DELETE /sessions/{name}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionEnded {
    /// Calls that were ended, running and queued ones.
    pub ended: u64,
}

/// `DELETE /processes/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessEnded {
    /// Which.
    pub process_id: String,
    /// Processes that were ended by this; 0 where the call had ended before, or had not begun.
    pub killed: u64,
    /// Processes that could not be ended.
    pub survivors: Vec<u32>,
}

/// `POST /processes/{id}/signal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalRequest {
    /// The signal's name, with or without `SIG`, or its number as text.
    pub signal: String,
    /// Send it to every process of the call rather than to its program alone.
    #[serde(default)]
    pub tree: bool,
}

/// Its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Signalled {
    /// Processes that were sent it.
    pub signalled: u64,
}

/// `POST /processes/{id}/stdin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StdinAccepted {
    /// Bytes that the program's stdin has taken.
    pub accepted_bytes: u64,
}
