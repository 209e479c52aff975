//! What runs a pod: podman and docker through a compose front end, or this machine itself.

mod container;
mod front_end;
mod inspect;
mod local;
mod run;
mod this_program;

use std::{fmt, time::Duration};

pub use front_end::detect;
pub(in crate::host) use front_end::{engine_version, front_end_version};
pub use inspect::{Container, Inside, NetworkMode};
pub(in crate::host) use inspect::{inspect, look_inside};
pub(in crate::host) use local::holder as local_agent;
pub use run::Finished;
pub use this_program::run_this_program;

use super::{EngineKind, Pod, Result};

/// How a pod's container is; for the local engine, its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// There is none.
    Absent,
    /// Made and not started.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// On its way down.
    Stopping,
    /// Ended.
    Exited {
        /// Its exit code, where the engine knows it.
        code: Option<i32>,
    },
    /// Something else.
    Unknown,
}

impl ContainerState {
    /// The state by an engine's word for it.
    fn named(word: &str, code: Option<i32>) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "running" | "restarting" => Self::Running,
            "created" | "configured" | "initialized" => Self::Created,
            "paused" => Self::Paused,
            "stopping" | "removing" => Self::Stopping,
            "exited" | "stopped" | "dead" => Self::Exited { code },
            _ => Self::Unknown,
        }
    }

    /// The lower, the more alive: of several containers the first is the one that counts.
    const fn liveness(self) -> u8 {
        match self {
            Self::Running => 0,
            Self::Stopping => 1,
            Self::Paused => 2,
            Self::Created => 3,
            Self::Exited { .. } => 4,
            Self::Unknown | Self::Absent => 5,
        }
    }
}

impl fmt::Display for ContainerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Created => f.write_str("created"),
            Self::Running => f.write_str("running"),
            Self::Paused => f.write_str("paused"),
            Self::Stopping => f.write_str("stopping"),
            Self::Exited { code: Some(code) } => write!(f, "exited with code {code}"),
            Self::Exited { code: None } => f.write_str("exited"),
            Self::Unknown => f.write_str("in an unknown state"),
        }
    }
}

/// Deadlines of what engines do.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// A question to an engine.
    pub quick: Duration,
    /// `up`: a first one pulls an image of some hundred MiB.
    pub up: Duration,
    /// `down`: the guest has two minutes to shut down.
    pub down: Duration,
    /// A local agent's start.
    pub local_start: Duration,
    /// A local agent's end after SIGTERM: its drain time, 5 s, and a margin.
    pub local_stop: Duration,
    /// A local agent's end after SIGKILL.
    pub local_kill: Duration,
}

impl EngineSettings {
    /// As the commands use them.
    pub const DEFAULT: Self = Self {
        quick: Duration::from_secs(10),
        up: Duration::from_mins(30),
        down: Duration::from_mins(4),
        local_start: Duration::from_secs(10),
        local_stop: Duration::from_secs(10),
        local_kill: Duration::from_secs(5),
    };
}

/// What `up` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It was not running and is now.
    Now,
    /// It was running already.
    AlreadyRunning,
}

/// What `down` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It was there and is down now.
    Now,
    /// It did not heed SIGTERM in time and was killed.
    Killed,
    /// It was not running.
    WasNotRunning,
}

/// How the pod's container is.
///
/// # Errors
/// When the engine is missing or fails.
pub async fn state(pod: &Pod) -> Result<ContainerState> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::state(pod, &EngineSettings::DEFAULT).await,
        EngineKind::Local => local::state(pod),
    }
}

/// Brings a pod up; one that is up already is a success.
///
/// # Errors
/// When the engine is missing or fails, or a port is taken.
pub async fn up(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::up(pod, settings).await,
        EngineKind::Local => local::up(pod, settings).await,
    }
}

/// Takes a pod down; one that is down already is a success. Its disk and its settings stay.
///
/// # Errors
/// When the engine is missing or fails.
pub async fn down(pod: &Pod, settings: &EngineSettings) -> Result<Stopped> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::down(pod, settings).await,
        EngineKind::Local => local::down(pod, settings).await,
    }
}
