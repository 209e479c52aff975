//! The host's side: the client of the agent, the wait for readiness, the engines, and the pod's folder.

mod error;
mod home;
mod pod;

pub use error::{Error, ErrorKind, Result};
pub use home::{Home, PodName};
pub use pod::{AgentKind, EngineKind, GuestOs, Pod, PodSettings, Ports};
