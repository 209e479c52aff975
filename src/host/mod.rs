//! The host's side: the client of the agent, the wait for readiness, the engines, and the pod's folder.

pub mod engine;
mod error;
mod home;
mod pod;
pub mod ports;
pub mod setup;

pub use error::{Error, ErrorKind, Result};
pub use home::{Home, PodName};
pub use pod::{AgentKind, EngineKind, GuestOs, Machine, Pod, PodSettings, Ports};
