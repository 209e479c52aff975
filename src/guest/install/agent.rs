//! The agent of an installation: who it is, whether it runs, how it is ended and started.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    super::{
        second::{Occupant, is_ready, look},
        sys,
    },
    places,
    record::{Record, ServeSettings},
    steps::Start,
    tool::Verdict,
};
use crate::{protocol::RunMode, token::replace_private};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// For an agent that answers to leave word that it is ours.
const WORD_PATIENCE: Duration = Duration::from_secs(2);

/// For an agent that was asked to end: its drain, and the kills after it.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Which agent runs, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFile {
    pub(super) pid: u32,
    /// By which a process is told from a later one of the same number; as the system counts.
    pub(super) started: Option<u64>,
    pub(super) agent_id: String,
    pub(super) version: String,
    pub(super) serve: ServeSettings,
    /// What it was started by, as far as it knows.
    #[serde(default = "unknown")]
    pub(super) mode: RunMode,
    /// The program that it was started from, as it was then.
    pub(super) exe_sha256: Option<String>,
}

/// Of an agent that was older.
const fn unknown() -> RunMode {
    RunMode::Unknown
}

impl AgentFile {
    pub(super) fn load(state: &Path) -> Option<Self> {
        let text = fs_err::read(places::agent_file(state)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether that very process lives.
    pub(super) fn lives(&self) -> bool {
        self.started.is_some_and(|started| sys::process_lives(self.pid, started))
    }
}

/// Leaves word which agent runs.
pub(in crate::guest) fn announce(installation: &super::Installation, agent_id: &str) -> anyhow::Result<()> {
    let pid = std::process::id();
    let us = std::env::current_exe().ok();
    let file = AgentFile {
        pid,
        started: sys::start_time(pid),
        agent_id: agent_id.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serve: installation.serve().clone(),
        mode: installation.mode(),
        exe_sha256: us.and_then(|us| super::steps::digest(&us).ok()).map(hex::encode),
    };
    let text = serde_json::to_vec_pretty(&file)?;
    Ok(replace_private(&places::agent_file(installation.state()), &text)?)
}

/// Asks whoever answers on the first of these addresses.
pub(super) async fn occupant(listen: &[SocketAddr]) -> Occupant {
    match listen.first() {
        Some(address) => look(*address).await,
        None => Occupant::Nobody,
    }
}

/// Has the agent run that belongs to this record: one that does is left alone, one of another version or with other
/// settings is ended first.
pub(super) async fn ensure_runs(record: &Record, state: &Path, deadline: Duration) -> Verdict {
    let known = AgentFile::load(state).filter(AgentFile::lives);
    let wanted = super::steps::digest(&record.exe).ok().map(hex::encode);
    if let Some(known) = &known {
        let is_right = known.serve == record.serve
            && known.mode == record.mode()
            && known.exe_sha256 == wanted
            && wanted.is_some();
        if is_right {
            return match until_it_answers(record, state, deadline).await {
                Ok(said) => Verdict::Done(said),
                Err(reason) => Verdict::Failed(reason),
            };
        }
        if sys::is_in_a_call() {
            let note = format!(
                "the agent that this runs in, version {}, goes on; `podlink agent restart` has the installed one take its place",
                known.version
            );
            return Verdict::Done(Some(note));
        }
        if let Err(error) = stop(known).await {
            return Verdict::failed(error.context("the agent that runs could not be replaced"));
        }
    }
    if let Occupant::Agent { agent_id, version } = occupant(&record.serve.listen).await {
        // one that its supervisor has just started again leaves word a moment after it answers
        if has_left_word(&agent_id, state).await {
            return Box::pin(ensure_runs(record, state, deadline)).await;
        }
        let address = record.serve.listen.first().map(ToString::to_string).unwrap_or_default();
        return Verdict::Failed(format!(
            "another agent ({agent_id}, version {version}) answers on {address}; stop that one and run this again"
        ));
    }
    if let Err(error) = sys::start_agent(&Start::of(record, state)).await {
        return Verdict::failed(error.context("the agent could not be started"));
    }
    match until_it_answers(record, state, deadline).await {
        Ok(said) => Verdict::Done(said),
        Err(reason) => Verdict::Failed(reason),
    }
}

/// Whether the one of this id leaves word, and so is ours; one that has done so already was seen alive before.
async fn has_left_word(agent_id: &str, state: &Path) -> bool {
    let by = Instant::now() + WORD_PATIENCE;
    loop {
        if AgentFile::load(state).is_some_and(|known| known.agent_id == agent_id && known.lives()) {
            return true;
        }
        if Instant::now() >= by {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the one that answers is ours.
async fn until_it_answers(record: &Record, state: &Path, deadline: Duration) -> Result<Option<String>, String> {
    let by = Instant::now() + deadline;
    let mut seen = Occupant::Nobody;
    while Instant::now() < by {
        seen = occupant(&record.serve.listen).await;
        let known = AgentFile::load(state);
        if let (Occupant::Agent { agent_id, .. }, Some(known)) = (&seen, &known)
            && known.agent_id == *agent_id
        {
            return Ok(Some(format!("version {} answers, pid {}", known.version, known.pid)));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let what = match seen {
        Occupant::Nobody => "nobody answers",
        Occupant::Leaving => "an agent answers that is going down",
        Occupant::Agent { .. } => "another agent answers",
        Occupant::Silent => "something takes connections and does not answer",
        Occupant::Foreign => "another program answers",
    };
    let address = record.serve.listen.first().map(ToString::to_string).unwrap_or_default();
    let log = places::agent_log(state);
    let seconds = deadline.as_secs_f32();
    Err(format!("{what} on {address} after {seconds} s; the agent's log is {}", log.display()))
}

/// Waits until the agent has seen that the installation is complete, so that whoever waits for it next is not told of
/// what was before. One that does not see it in time is left to itself.
pub(super) async fn until_it_sees_the_end(listen: &[SocketAddr]) {
    let Some(address) = listen.first() else { return };
    let by = Instant::now() + WORD_PATIENCE;
    while Instant::now() < by && !is_ready(*address).await {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks it to end, and waits until it has.
pub(super) async fn stop(known: &AgentFile) -> anyhow::Result<()> {
    if !known.lives() {
        return Ok(());
    }
    sys::ask_to_stop(known.pid)?;
    let by = Instant::now() + STOP_PATIENCE;
    while known.lives() {
        anyhow::ensure!(
            Instant::now() < by,
            "the agent (pid {}) was asked to end and has not within {} s",
            known.pid,
            STOP_PATIENCE.as_secs()
        );
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
