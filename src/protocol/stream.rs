//! What goes beside the bytes of a streamed answer: its beginning, ranges that are missing, its end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ErrorBody, ExecResult};

/// Header of a streamed answer: the agent's name for the run, so that its caller can signal it or come back to it.
pub const HEADER_PROCESS_ID: &str = "x-process-id";

/// Names of the server-sent events of a streamed answer.
///
/// `stdout` and `stderr` carry base64, the others JSON.
pub mod stream_event {
    /// A [`Started`](super::Started), the first event.
    pub const STARTED: &str = "started";
    /// Bytes of standard output in base64.
    pub const STDOUT: &str = "stdout";
    /// Bytes of standard error in base64.
    pub const STDERR: &str = "stderr";
    /// A [`Gap`](super::Gap).
    pub const GAP: &str = "gap";
    /// A [`StreamEnd`](super::StreamEnd), the last event.
    pub const EXIT: &str = "exit";
}

/// A run has begun: the 202 of a detached call, the first event of a streamed one, the first status of an attached one.
///
/// A detached call whose turn in its session has not come is told likewise, without a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Started {
    /// The agent's name for the run.
    pub process_id: String,
    /// The program's number in the guest; null where the call waits for its turn.
    #[serde(default)]
    pub pid: Option<u32>,
}

/// Output that is gone: the ring had no room for it any more.
///
/// Offsets count the bytes of stdout and stderr together, in the order in which the agent read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// The offset of the first byte that is missing.
    pub from: u64,
    /// The offset of the first byte that is there again.
    pub to: u64,
}

/// The last word of a streamed answer.
///
/// A stream that ends without one was cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamEnd {
    /// The program ended, or was killed by its time-out: the result, without the output.
    Result(Box<ExecResult>),
    /// The call was ended, or failed.
    Error(Box<ErrorBody>),
    /// The program runs on; only where its output was asked for with `follow=false`.
    Running(Running),
}

/// Where the output of a program that runs on stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Running {
    /// Always true.
    pub running: bool,
    /// The offset behind the last byte that was sent.
    pub offset: u64,
}
