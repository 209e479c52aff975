//! The engines: what runs the pod's container, and how that container is.

use super::{Pod, Result};

/// How the pod's container (with the local engine: its agent's process) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// There is none.
    Absent,
    /// Made and not started yet.
    Created,
    /// Running.
    Running,
    /// Paused.
    Paused,
    /// Going down.
    Stopping,
    /// Ended.
    Exited {
        /// Its exit code, where the engine knows it.
        code: Option<i32>,
    },
    /// The engine did not say.
    Unknown,
}

/// Asks the pod's engine how its container is.
///
/// # Errors
/// When the engine is missing or fails.
#[expect(clippy::unused_async, reason = "the engines are asked through processes; they come with `pod up`")]
pub async fn state(_pod: &Pod) -> Result<ContainerState> {
    Ok(ContainerState::Unknown)
}
