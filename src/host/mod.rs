//! The host's side: the client of the agent, the wait for readiness, the engines, and the pod's folder.

mod agent_restart;
mod client;
pub mod doctor;
pub mod engine;
mod error;
mod events;
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
pub mod time_sync;
mod watch;
mod windows_exe;

pub use agent_restart::{RESTART_TIMEOUT, restart_agent};
pub use client::{
    AgentClient, AgentEvent, AttachEvent, Attached, AttachedInput, AttachedOutput, ClientSettings, EventItem,
    EventStream, EventsPatience, EventsRequest, ExecEvent, ExecOutcome, ExecStream, GuestLogRequest, GuestLogStream,
    Job, RequestId, Seen,
};
pub use error::{Error, ErrorKind, Result};
pub use events::{EventSource, POD_CONNECTED, POD_DISCONNECTED, POD_STATE, PodEvent, PodEvents};
pub use home::{Home, PodName};
pub use installation::{StaleOem, before_up, is_new_disk, remember_ready};
pub use list::{ListedPod, list};
pub use pod::{AgentKind, EngineKind, GuestOs, Machine, Pod, PodSettings, Ports};
pub use readiness::{Progress, WaitSettings, WaitStage, wait_ready};
pub use state::{AgentSign, PodState};
pub use status::{AgentStatus, PodStatus, TokenStatus, status};
pub use watch::{Change, WatchSettings, watch};
pub use windows_exe::{NoWindowsExe, WindowsExe};
