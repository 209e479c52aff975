//! What an examination has seen; everything that a verdict rests on.

use std::{path::PathBuf, time::Duration};

use super::super::{
    EngineKind, GuestOs, Seen,
    engine::{Container, Inside, NetworkMode},
    ports::Owner,
};
use crate::{
    compose::{MergedLegs, Origin},
    host::engine::ContainerState,
    protocol::Whoami,
};

/// All of it.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Whose evidence it is.
    pub pod: Subject,
    /// What the engine says.
    pub engine: EngineEvidence,
    /// What is wrong with the files in the pod's folder.
    pub files: Vec<FileFault>,
    /// Why a guest that is installed now would get no agent, where that is so.
    pub guest_agent: Option<String>,
    /// Why the token cannot be had, where it cannot.
    pub token: Result<(), String>,
    /// What the compose files say; `None` for the local engine.
    pub legs: Option<LegsEvidence>,
    /// Who listens on the agent's port of this host.
    pub owner: PortOwner,
    /// What happened on the port, in order.
    pub tries: Vec<Try>,
    /// What the agent did, where one answered as ready.
    pub agent: Option<AgentEvidence>,
    /// By how many seconds the guest's clock is surely ahead of this one (behind where negative).
    pub clock: Option<f64>,
}

/// The pod that is examined.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// What runs it.
    pub engine: EngineKind,
    /// The guest's system.
    pub guest: GuestOs,
    /// The agent's port on the host.
    pub port: u16,
    /// How far the clocks may differ.
    pub clock_tolerance: Duration,
}

/// A program that was found and run.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Where, or how it is typed.
    pub name: String,
    /// What it says of itself.
    pub version: String,
}

/// The answer to a question that may fail, or is not asked because an earlier one failed.
#[derive(Debug, Clone)]
pub enum Asked<T> {
    /// The answer.
    Answer(T),
    /// Why there is none.
    Failed(String),
    /// Not asked.
    Skipped,
}

impl<T> Asked<T> {
    /// The answer, where there is one.
    pub const fn answer(&self) -> Option<&T> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Failed(_) | Self::Skipped => None,
        }
    }
}

/// What the engine says.
#[derive(Debug, Clone)]
pub enum EngineEvidence {
    /// The agent is a process of this machine.
    Local(Asked<ContainerState>),
    /// podman or docker.
    Container {
        /// The engine's program.
        program: Asked<Tool>,
        /// Its compose front end.
        front_end: Asked<Tool>,
        /// The pod's container; the inner `None` is that there is none.
        container: Asked<Option<Container>>,
        /// The running container from inside, where that could be seen.
        inside: Option<Inside>,
    },
}

/// A file or folder that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Which.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: FileKind,
}

/// What may be wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// It is not there.
    Missing,
    /// Others may look into it.
    Wide {
        /// Its mode.
        mode: u32,
        /// What it should be.
        wanted: u32,
    },
    /// Another user owns it.
    Foreign {
        /// That user's id.
        owner: u32,
    },
    /// It is a link, or a folder instead of a file, or the other way round.
    WrongKind,
    /// It is no copy of the token.
    OtherToken,
    /// It does not hold what it should.
    Unreadable,
}

/// What the compose files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LegsEvidence {
    /// They read; and whether there is an override.
    Read(MergedLegs),
    /// `compose.yaml` is missing.
    Missing,
    /// One of them does not read.
    Unreadable(Origin),
}

/// Who listens on the agent's port of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortOwner {
    /// Nobody; an engine that forwards in the kernel may still answer there.
    Nobody,
    /// A program that belongs to the engine, or for the local engine the agent.
    Ours(Owner),
    /// A program that does not.
    Other(Owner),
    /// It cannot be told: another user's process.
    Unknown(Owner),
}

/// What one new connection to the port met.
#[derive(Debug, Clone, PartialEq)]
pub enum Try {
    /// Nothing listens.
    Refused,
    /// The connection was not made in time.
    ConnectTimedOut,
    /// It could not be made for another reason.
    Unreachable(String),
    /// Made, then reset.
    Reset,
    /// Made, then closed without an answer.
    Closed,
    /// Made, and nothing came.
    Silent,
    /// An answer; never one of the silent kinds of [`Seen`].
    Answered(Seen),
}

impl Try {
    /// Whether it was a ready agent that holds our token.
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Answered(Seen::Ready(_)))
    }
}

/// What the agent did.
#[derive(Debug, Clone)]
pub struct AgentEvidence {
    /// The authorized call; agents of other kinds tell nothing of themselves.
    pub whoami: Result<Option<Whoami>, (String, Option<String>)>,
    /// A script's run.
    pub exec: Asked<ExecEvidence>,
    /// By how many seconds its clock is surely ahead, by its own answers, where it gives any.
    pub clock: Option<f64>,
}

/// A run of a script that does nothing.
#[derive(Debug, Clone)]
pub enum ExecEvidence {
    /// It ran.
    Ran {
        /// Its exit code.
        rc: i64,
        /// From the call to its answer.
        took: Duration,
    },
    /// It did not, since as much as the agent takes ran already; what the agent said.
    NoSlot(String),
}

impl Evidence {
    /// What the port settled on: the last answer of anybody, else the last try.
    pub fn outcome(&self) -> Option<&Try> {
        self.tries.iter().rfind(|tried| matches!(tried, Try::Answered(_))).or(self.tries.last())
    }

    /// The container, where there is one.
    pub const fn container(&self) -> Option<&Container> {
        match &self.engine {
            EngineEvidence::Container { container: Asked::Answer(Some(container)), .. } => Some(container),
            _ => None,
        }
    }

    /// The state of the container or the local agent, where it is known.
    pub fn state(&self) -> Option<ContainerState> {
        match &self.engine {
            EngineEvidence::Local(state) => state.answer().copied(),
            EngineEvidence::Container { container, .. } => container
                .answer()
                .map(|container| container.as_ref().map_or(ContainerState::Absent, |container| container.state)),
        }
    }

    /// The running container from inside.
    pub const fn inside(&self) -> Option<Inside> {
        match &self.engine {
            EngineEvidence::Container { inside, .. } => *inside,
            EngineEvidence::Local(_) => None,
        }
    }

    /// What the compose files say, where they read.
    pub const fn merged(&self) -> Option<&MergedLegs> {
        match &self.legs {
            Some(LegsEvidence::Read(legs)) => Some(legs),
            _ => None,
        }
    }

    /// The image's `NETWORK`: of the container, else of the files.
    pub fn network_setting(&self) -> Option<&str> {
        match self.container() {
            Some(container) => container.network.as_deref(),
            None => self.merged()?.network.as_deref(),
        }
    }

    /// How the guest is joined to the network, as far as it is known.
    pub fn mode(&self) -> Option<NetworkMode> {
        let seen = self.inside().and_then(|inside| inside.mode);
        seen.or_else(|| match self.network_setting()?.to_ascii_lowercase().as_str() {
            "slirp" => Some(NetworkMode::Slirp),
            "passt" => Some(NetworkMode::Passt),
            _ => None,
        })
    }
}
