//! The wire contract, version 1: request and answer types, error codes, header and path names. No I/O.
//!
//! `docs/protocol.md` says it in words; `docs/openapi.yaml` is generated from these types.
//!
//! Version history: **1** the first.
//!
//! To change it: a new optional field is no new version (readers ignore what they do not know, and every field
//! that an old peer does not send has a default here). A change that an old peer would misread raises
//! [`PROTOCOL_VERSION`] and gets a line above.

mod attach;
mod error;
mod event;
mod exec;
mod frame;
mod health;
mod info;
mod install;
mod logs;
mod metrics;
mod openapi;
mod process;
mod restart;
mod sse;
mod stream;
mod system;
mod time;
mod whoami;

pub use attach::{
    AttachControl, AttachRequest, AttachStatus, CHANNEL_CLOSE, CHANNEL_RESIZE, CHANNEL_STATUS, CHANNEL_STDERR,
    CHANNEL_STDIN, CHANNEL_STDOUT, MAX_MESSAGE, Pty, TerminalSize,
};
pub use error::{ErrorBody, ErrorCode};
pub use event::{
    AgentStartedEvent, AuthFailedEvent, EventId, EventName, ExecExitedEvent, ExecOutputEvent, ExecStartedEvent,
    GapEvent, GapReason, HEADER_LAST_EVENT_ID, InstallStepEvent, LaggedEvent, LogEvent, MAX_EVENT, MalformedEventId,
    PATH_EVENTS, PlainEvent, event_matches,
};
pub use exec::{ExecRequest, ExecResult, Shell, TimeoutSec};
pub use frame::{
    FRAME_HEADER, Frame, FrameDecoder, FrameError, FrameKind, FramePart, FrameParts, MAX_FRAME, MEDIA_EVENTS,
    MEDIA_MULTIPLEXED, frame_header,
};
pub use health::{Health, Stage};
pub use info::{DiskInfo, LoggedIn, Package, SystemInfo};
pub use install::{InstallReport, InstallStep, RunMode, StepState};
pub use logs::{GuestLog, LogLine, MEDIA_NDJSON};
pub use metrics::{
    AgentMetrics, CallCounts, CpuSeconds, DiskIo, DiskSpace, MemoryBytes, Metrics, NetworkIo, RequestCounts,
};
pub use openapi::openapi;
pub use process::{
    ProcessEnded, ProcessInfo, ProcessList, ProcessMode, ProcessState, SessionEnded, SessionInfo, SessionList,
    SignalRequest, Signalled, StdinAccepted,
};
pub use restart::{PATH_AGENT_RESTART, RestartAccepted};
pub use sse::{SSE_ALIVE, SseDecoder, SseEvent, SseTooLarge, sse_event, sse_position};
pub use stream::{Gap, HEADER_PROCESS_ID, Running, Started, StreamEnd, stream_event};
pub use system::{SocketOwner, SocketProtocol, SystemProcess, SystemProcesses, SystemSocket, SystemSockets};
pub use time::{GuestTime, SetTime, TimeSet, TimeZone};
pub use whoami::{Limits, Whoami};

/// The version of the wire that this build speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// The agent's port where nothing else is said.
pub const DEFAULT_PORT: u16 = 8765;

/// Header naming the protocol version: on every response, and checked on a request that bears it.
pub const HEADER_PROTOCOL: &str = "podlink-protocol";
/// Header with the caller's or the agent's id for one request; a repeated `POST` with the same one runs once.
pub const HEADER_REQUEST_ID: &str = "x-request-id";
/// Header of a retry: the [`Health::agent_id`] that the first try spoke to. Another agent answers 409.
pub const HEADER_IF_AGENT: &str = "podlink-if-agent";
/// Request header of `/health`: 64 hex digits that the agent is to sign.
pub const HEADER_CHALLENGE: &str = "podlink-challenge";
/// Response header of `/health`: the signature over the challenge, proof that the agent holds the token.
pub const HEADER_PROOF: &str = "podlink-proof";

/// The only path without auth; 200 is the only sign of readiness.
pub const PATH_HEALTH: &str = "/health";
/// The authorized call that does nothing but tell who answers.
pub const PATH_WHOAMI: &str = "/whoami";
/// Runs a script or a program.
pub const PATH_EXEC: &str = "/exec";
/// Runs one and stays attached to it over a WebSocket.
pub const PATH_EXEC_ATTACH: &str = "/exec/attach";
/// The calls that the agent knows; `/{process_id}` one of them, below it `output`, `attach`, `stdin` and `signal`.
pub const PATH_PROCESSES: &str = "/processes";
/// Calls that run one after the other; `/{name}` one of them.
pub const PATH_SESSIONS: &str = "/sessions";
/// The agent's log and the installation's.
pub const PATH_LOGS: &str = "/logs";
/// All processes of the guest.
pub const PATH_SYSTEM_PROCESSES: &str = "/system/processes";
/// All sockets of the guest that can be reached.
pub const PATH_SYSTEM_SOCKETS: &str = "/system/sockets";
/// What the guest is.
pub const PATH_SYSTEM_INFO: &str = "/system/info";
/// How busy the guest and its agent are.
pub const PATH_SYSTEM_METRICS: &str = "/system/metrics";
/// The guest's clocks; set by `POST`.
pub const PATH_SYSTEM_TIME: &str = "/system/time";

/// Media type of metrics as Prometheus reads them.
pub const MEDIA_PROMETHEUS: &str = "text/plain";
/// Media type of metrics as `OpenMetrics` has them.
pub const MEDIA_OPENMETRICS: &str = "application/openmetrics-text";

/// Default of [`ExecRequest::timeout_sec`].
pub const DEFAULT_TIMEOUT_SEC: u64 = 60;
/// Most bytes of a JSON body.
pub const MAX_JSON_BODY: usize = 8 * 1024 * 1024;
/// Default of [`ExecRequest::max_output_bytes`], for each of stdout and stderr.
pub const DEFAULT_MAX_OUTPUT: u64 = 8 * 1024 * 1024;
/// [`ExecResult::rc`] of a call that was killed by its time-out, as coreutils' `timeout` has it.
pub const RC_TIMED_OUT: i64 = 124;
/// [`ExecResult::rc`] of a program killed by signal N is this plus N, as shells have it.
pub const RC_SIGNAL_BASE: i64 = 128;
