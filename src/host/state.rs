//! A pod's state in one word, derived from its container and its agent.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::{client::Seen, engine::ContainerState};
use crate::protocol::Stage;

/// How a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodState {
    /// Its container is made and not started.
    Created,
    /// It runs and takes no calls yet.
    Starting,
    /// It takes calls.
    Ready,
    /// Waiting will not help: the installation failed, the agent has another token, another program answers in its
    /// place, or the container ended by itself with an error.
    Failed,
    /// It is frozen.
    Paused,
    /// It is on its way down.
    Stopping,
    /// Its container has ended.
    Stopped,
    /// It has no container: it was never started, or was taken down.
    Gone,
    /// The engine cannot say, and no agent answers.
    Unknown,
}

impl PodState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Created,
        Self::Starting,
        Self::Ready,
        Self::Failed,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Gone,
        Self::Unknown,
    ];

    /// As it stands in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }

    /// From what the engine says of the container and what the agent says of itself.
    ///
    /// An agent that answers is believed before the engine: it is what calls go to.
    pub const fn derive(container: ContainerState, agent: AgentSign) -> Self {
        match (container, agent) {
            (ContainerState::Stopping, _) => Self::Stopping,
            (ContainerState::Paused, _) => Self::Paused,
            (_, AgentSign::Ready) => Self::Ready,
            (_, AgentSign::Starting) | (ContainerState::Running, AgentSign::Nothing) => Self::Starting,
            // whoever answers there while nothing of ours runs says nothing about the pod
            (_, AgentSign::Failed) | (ContainerState::Running, AgentSign::Foreign) => Self::Failed,
            (_, AgentSign::Stopping) => Self::Stopping,
            (ContainerState::Created, _) => Self::Created,
            (ContainerState::Absent, _) => Self::Gone,
            (ContainerState::Exited { code }, _) => match code {
                // by itself, or by what `down` and `kill` send
                None | Some(0 | 130 | 137 | 143) => Self::Stopped,
                Some(_) => Self::Failed,
            },
            (ContainerState::Unknown, _) => Self::Unknown,
        }
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PodState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|state| state.as_str()).collect();
            format!("a state is one of {}", all.join(", "))
        })
    }
}

impl Serialize for PodState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What the agent's port tells of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentSign {
    /// It takes calls.
    Ready,
    /// It answers and waits for something.
    Starting,
    /// It answers, and waiting will not help.
    Failed,
    /// It is on its way down.
    Stopping,
    /// Something that is no agent answers in full.
    Foreign,
    /// Nothing that could be told from a start in progress.
    Nothing,
}

impl AgentSign {
    /// From a look at the port; `served` tells whether an authorized call was answered.
    pub(super) fn of(seen: &Seen, served: bool) -> Self {
        match seen {
            Seen::Ready(_) if served => Self::Ready,
            Seen::Ready(_) => Self::Starting,
            Seen::NotReady(health) => match health.stage {
                Stage::InstallFailed => Self::Failed,
                Stage::Draining => Self::Stopping,
                _ => Self::Starting,
            },
            Seen::TokenMismatch(_) => Self::Failed,
            Seen::Foreign { status: Some(status), .. } if *status < 500 => Self::Foreign,
            Seen::Foreign { .. } | Seen::Refused | Seen::Reset | Seen::Silent => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_state() {
        use AgentSign as A;
        use ContainerState as C;
        use PodState as P;
        let failed = C::Exited { code: Some(1) };
        let signs = [A::Ready, A::Starting, A::Failed, A::Stopping, A::Foreign, A::Nothing];
        let answered = [P::Ready, P::Starting, P::Failed, P::Stopping];
        // what answers stands first, then what only a container can tell
        let table = [
            (C::Running, answered, [P::Failed, P::Starting]),
            (C::Created, answered, [P::Created; 2]),
            (C::Absent, answered, [P::Gone; 2]),
            (C::Unknown, answered, [P::Unknown; 2]),
            (C::Exited { code: None }, answered, [P::Stopped; 2]),
            (C::Exited { code: Some(0) }, answered, [P::Stopped; 2]),
            (C::Exited { code: Some(137) }, answered, [P::Stopped; 2]),
            (C::Exited { code: Some(143) }, answered, [P::Stopped; 2]),
            (failed, answered, [P::Failed; 2]),
            (C::Paused, [P::Paused; 4], [P::Paused; 2]),
            (C::Stopping, [P::Stopping; 4], [P::Stopping; 2]),
        ];
        for (container, answered, silent) in table {
            for (sign, state) in signs.into_iter().zip(answered.into_iter().chain(silent)) {
                assert_eq!(P::derive(container, sign), state, "{container:?}, {sign:?}");
            }
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in PodState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("Ready".parse::<PodState>().unwrap_err().contains("starting"));
    }
}
