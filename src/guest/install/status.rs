//! How an installation stands.

use std::path::Path;

use serde::Serialize;

use super::{
    super::{second::Occupant, sys},
    agent::{self, AgentFile},
    lock::Lock,
    look::Installation,
    record::Record,
    steps::Start,
};
use crate::protocol::{InstallReport, RunMode};

/// Who answers where the agent should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum AgentSeen {
    /// The installation's own.
    Running {
        /// Its process.
        pid: u32,
        /// New at each start.
        agent_id: String,
        /// Its version.
        version: String,
    },
    /// An agent that belongs to no installation, or to another.
    Other {
        /// New at each start.
        agent_id: String,
        /// Its version.
        version: String,
    },
    /// It lives and does not answer (yet), or is going down.
    Silent,
    /// Another program holds its port.
    Foreign,
    /// Nobody.
    Absent,
}

/// How an installation stands.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The folder of the state.
    pub state_dir: String,
    /// Its steps; absent where nothing is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallReport>,
    /// Whether somebody works at it now.
    pub installing: bool,
    /// The installed executable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// Where the agent listens.
    pub listen: Vec<String>,
    /// What starts the agent from now on, as the system has it; absent where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart: Option<String>,
    /// What that means for whoever relies on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who answers.
    pub agent: AgentSeen,
}

/// Looks at the installation whose state lies in this folder.
///
/// # Errors
/// When its record cannot be read.
pub async fn status(state: &Path) -> anyhow::Result<Status> {
    let record = Record::load(state)?;
    let Some(record) = record else {
        return Ok(Status {
            state_dir: state.display().to_string(),
            install: None,
            installing: false,
            exe: None,
            listen: Vec::new(),
            autostart: None,
            note: None,
            agent: AgentSeen::Absent,
        });
    };
    let installation = Installation::find(state)?;
    let start = Start::of(&record, state);
    let autostart = if record.mode() == RunMode::Manual { None } else { sys::registered(&start).await };
    Ok(Status {
        state_dir: state.display().to_string(),
        install: installation.and_then(|installation| installation.report()),
        installing: Lock::take(state)?.is_none(),
        exe: Some(record.exe.display().to_string()),
        listen: record.serve().listen.iter().map(ToString::to_string).collect(),
        note: Some(match record.mode() {
            RunMode::Manual => format!("nothing starts the agent but you: {}", start.line()),
            mode => sys::mode_note(mode).to_owned(),
        }),
        autostart,
        agent: agent_seen(&record, state).await,
    })
}

async fn agent_seen(record: &Record, state: &Path) -> AgentSeen {
    let known = AgentFile::load(state);
    match agent::occupant(&record.serve().listen).await {
        Occupant::Agent { agent_id, version } => match known {
            Some(known) if known.agent_id == agent_id => AgentSeen::Running { pid: known.pid, agent_id, version },
            _ => AgentSeen::Other { agent_id, version },
        },
        Occupant::Leaving | Occupant::Silent => AgentSeen::Silent,
        Occupant::Nobody if known.is_some_and(|known| known.lives()) => AgentSeen::Silent,
        Occupant::Nobody => AgentSeen::Absent,
        Occupant::Foreign => AgentSeen::Foreign,
    }
}
