//! The host's side: the client of the agent, the wait for readiness, the engines, and the pod's folder.

mod client;
pub mod doctor;
pub mod engine;
mod error;
mod home;
mod installation;
mod list;
mod lock;
pub mod logs;
mod pod;
pub mod ports;
mod readiness;
pub mod setup;
mod state;
mod status;
pub mod terminal;
mod watch;

pub use client::{
    AgentClient, AttachEvent, Attached, AttachedInput, AttachedOutput, ClientSettings, ExecEvent, ExecOutcome,
    ExecStream, GuestLogRequest, GuestLogStream, Job, RequestId, Seen,
};
pub use error::{Error, ErrorKind, Result};
pub use home::{Home, PodName};
pub use installation::{StaleOem, before_up, is_new_disk, remember_ready};
pub use list::{ListedPod, list};
pub use pod::{AgentKind, EngineKind, GuestOs, Machine, Pod, PodSettings, Ports};
pub use readiness::{Progress, WaitSettings, WaitStage, wait_ready};
pub use state::{AgentSign, PodState};
pub use status::{AgentStatus, PodStatus, TokenStatus, status};
pub use watch::{Change, WatchSettings, watch};
