//! How a pod is, in one look: engine, container, port, agent, token.

use std::time::Duration;

use serde::Serialize;

use super::{
    AgentClient, AgentKind, AgentSign, ClientSettings, EngineKind, Pod, PodState, Result,
    client::{Seen, stage_sentence},
    engine::{self, ContainerState},
};
use crate::protocol::Health;

/// For the engine to answer.
const ENGINE_DEADLINE: Duration = Duration::from_secs(5);

/// How a pod is.
#[derive(Debug, Clone, Serialize)]
pub struct PodStatus {
    /// Its name.
    pub pod: String,
    /// What runs it.
    pub engine: EngineKind,
    /// All of what follows in one word.
    pub state: PodState,
    /// Its container, in one word.
    pub container: &'static str,
    /// Why the engine could not be asked, where it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_error: Option<String>,
    /// Where the agent is looked for.
    pub address: String,
    /// What answers there.
    pub agent: AgentStatus,
    /// Whether the agent takes the pod's token.
    pub token: TokenStatus,
    /// Whether calls are served.
    pub ready: bool,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What answers on the agent's port.
#[derive(Debug, Clone, Serialize)]
pub struct AgentStatus {
    /// `ready`, `not_ready`, `token_mismatch`, `refused`, `reset`, `silent` or `foreign`.
    pub seen: &'static str,
    /// The same as a sentence.
    pub says: String,
    /// Which agent the pod's settings say it is.
    pub kind: AgentKind,
    /// What such an agent cannot do, where that is anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<&'static str>,
    /// Its health, where an agent answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

/// Whether the agent takes the pod's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    /// It does.
    Ok,
    /// It has another one.
    Mismatch,
    /// Nobody was there to be asked, or the agent has none yet.
    Unknown,
}

/// Looks at a pod once.
///
/// # Errors
/// When the pod's own files cannot be read. Whatever engine and agent do is part of the status.
pub async fn status(pod: &Pod, settings: ClientSettings) -> Result<PodStatus> {
    let client = AgentClient::for_pod(pod, settings)?;
    let (container, seen) = tokio::join!(tokio::time::timeout(ENGINE_DEADLINE, engine::state(pod)), client.health());
    let mut seen = seen?;
    let (container, engine_error) = match container {
        Ok(Ok(state)) => (state, None),
        Ok(Err(error)) => (ContainerState::Unknown, Some(error.to_string())),
        Err(_) => (ContainerState::Unknown, Some("it did not answer in time".to_owned())),
    };
    let mut trouble = match &seen {
        Seen::Ready(_) => client.check_token().await.err(),
        other => Some(client.error_of(other)),
    };
    if let (Seen::Ready(health), Some(error)) = (&seen, &trouble)
        && error.kind() == super::ErrorKind::TokenMismatch
    {
        seen = Seen::TokenMismatch(health.clone());
    }
    let token = match &seen {
        Seen::TokenMismatch(_) => TokenStatus::Mismatch,
        Seen::Ready(_) if trouble.is_none() => TokenStatus::Ok,
        // it has proved the token on the way, unless it need not have one
        Seen::NotReady(health) if health.stage.implies_token() => TokenStatus::Ok,
        _ => TokenStatus::Unknown,
    };
    let says = match (&seen, &trouble) {
        (Seen::NotReady(health), _) => stage_sentence(health.stage, &health.waiting_for),
        (_, Some(error)) => error.to_string(),
        _ => "ready".to_owned(),
    };
    Ok(PodStatus {
        pod: pod.name().to_string(),
        engine: pod.settings().engine,
        state: PodState::derive(container, AgentSign::of(&seen, trouble.is_none())),
        container: container_word(container),
        engine_error,
        address: client.address().to_string(),
        ready: matches!(seen, Seen::Ready(_)) && trouble.is_none(),
        hint: trouble.take().and_then(|error| error.hint().map(str::to_owned)),
        agent: AgentStatus {
            seen: seen.as_str(),
            says,
            kind: pod.settings().agent,
            limits: pod.settings().agent.limits(),
            health: seen.health().cloned(),
        },
        token,
    })
}

const fn container_word(state: ContainerState) -> &'static str {
    match state {
        ContainerState::Absent => "absent",
        ContainerState::Created => "created",
        ContainerState::Running => "running",
        ContainerState::Paused => "paused",
        ContainerState::Stopping => "stopping",
        ContainerState::Exited { .. } => "exited",
        ContainerState::Unknown => "unknown",
    }
}
