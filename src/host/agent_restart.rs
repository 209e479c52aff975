//! The agent of a pod, restarted: asked to end, and waited for until another one serves calls.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::{AgentClient, Progress, Result, WaitSettings, engine::ContainerState, wait_ready};
use crate::protocol::{Health, RestartAccepted};

/// How long that may take where nothing else is said: the agent's drain, and its start.
pub const RESTART_TIMEOUT: Duration = Duration::from_mins(1);

/// Has the agent restarted, and waits as [`wait_ready`] does until one with another id is ready; returns who ended and
/// who answers.
///
/// # Errors
/// As [`AgentClient::restart_agent`] and [`wait_ready`].
pub async fn restart_agent<Probe, Asked>(
    client: &AgentClient,
    container: Probe,
    settings: &WaitSettings,
    mut progress: impl FnMut(&Progress),
) -> Result<(RestartAccepted, Health)>
where
    Probe: Fn() -> Asked,
    Asked: Future<Output = Result<ContainerState>>,
{
    let by = Instant::now() + settings.timeout;
    let accepted = client.restart_agent().await?;
    loop {
        let left = WaitSettings { timeout: by.saturating_duration_since(Instant::now()), ..settings.clone() };
        let health = wait_ready(client, &container, &left, &mut progress).await?;
        // the one that ends is not ready any more, but its last answer may have been on its way
        if health.agent_id != accepted.agent_id {
            return Ok((accepted, health));
        }
        tokio::time::sleep(settings.first_pause).await;
    }
}
