//! What runs a pod: podman and docker through a compose front end, or this machine itself.

mod applied;
mod container;
mod front_end;
mod inspect;
mod listing;
mod local;
mod logs;
mod run;
mod this_program;

use std::{fmt, time::Duration};

pub use front_end::detect;
pub(in crate::host) use front_end::{engine_version, front_end_version};
pub use inspect::{Container, Inside, NetworkMode};
pub(in crate::host) use inspect::{inspect, look_inside};
pub(in crate::host) use local::holder as local_agent;
pub use logs::last_log_lines;
pub(in crate::host) use logs::{container_log, local_log_file};
pub use run::Finished;
pub use this_program::run_this_program;

use super::{EngineKind, Error, ErrorKind, Pod, Result, lock};

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
    /// For another command that starts or stops the same pod.
    pub lock: Duration,
    /// A question to an engine.
    pub quick: Duration,
    /// `up`: a first one pulls an image of some hundred MiB.
    pub up: Duration,
    /// What the guest gets to shut down before its container is killed.
    pub stop_grace: Duration,
    /// What an engine may take beyond that.
    pub stop_margin: Duration,
    /// Compose's `down`, of a container that is stopped already.
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
        lock: Duration::from_mins(1),
        quick: Duration::from_secs(10),
        up: Duration::from_mins(30),
        stop_grace: Duration::from_mins(2),
        stop_margin: Duration::from_secs(30),
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
    /// It was paused and runs on.
    Resumed,
    /// Its settings had changed: its container was made anew, on the same disk.
    Recreated,
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
    let _alone = alone(pod, settings).await?;
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
    let _alone = alone(pod, settings).await?;
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::down(pod, settings).await,
        EngineKind::Local => local::down(pod, settings).await,
    }
}

/// Stops a pod in its time and starts it again; one that did not run is started.
///
/// # Errors
/// As [`up`] and [`down`].
pub async fn restart(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    let _alone = alone(pod, settings).await?;
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::restart(pod, settings).await,
        EngineKind::Local => {
            local::down(pod, settings).await?;
            local::up(pod, settings).await
        }
    }
}

/// Keeps other commands from starting and stopping the same pod, for as long as the value lives.
async fn alone(pod: &Pod, settings: &EngineSettings) -> Result<std::fs::File> {
    let who = format!("another command that starts or stops the pod {}", pod.name());
    lock::take(&pod.dir().join(".engine.lock"), &who, settings.lock).await
}

/// Freezes a pod's container, the guest in it too; one that is frozen is a success.
///
/// # Errors
/// When it does not run, the engine fails, or the engine is local.
pub async fn pause(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::pause(pod, settings).await,
        EngineKind::Local => Err(no_pause(pod)),
    }
}

/// Lets a frozen container run on; one that runs is a success.
///
/// # Errors
/// As [`pause`].
pub async fn resume(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => container::resume(pod, settings).await,
        EngineKind::Local => Err(no_pause(pod)),
    }
}

/// A stopped agent would be no paused pod: the programs that it has started have process groups of their own and
/// would run on, with nobody left to keep their time limits.
fn no_pause(pod: &Pod) -> Error {
    let detail = format!("the pod {} is local: without a container there is nothing that can be paused", pod.name());
    Error::new(ErrorKind::Settings, detail).with_hint(format!("stop it with `podlink pod down --pod {}`", pod.name()))
}
