//! What is broken between this host and the guest: evidence is gathered, then judged.
//!
//! Gathering asks the engine, the pod's files, the kernel and the agent's port, each within a deadline, and opens
//! nothing but that port. Judging is a function of the [`Evidence`] alone: a line for each check, and one sentence
//! that names the most likely cause and what to do about it. An open port proves nothing (forwarders take connections
//! with no guest behind them), so it is what happens on new connections that counts.

mod agent;
mod cause;
mod check;
mod engine;
mod evidence;
mod files;
mod guest_leg;
mod legs;
mod port;
mod report;
mod words;

use std::time::Duration;

pub use check::{Check, Status};
pub use evidence::{
    AgentEvidence, Asked, EngineEvidence, Evidence, ExecEvidence, FileFault, FileKind, LegsEvidence, PortOwner,
    Subject, Tool, Try,
};
pub use report::{Report, judge};

use super::{ClientSettings, Error, Home, Pod, Result, engine::EngineSettings};

/// Deadlines of an examination. Together they keep it under 15 s.
#[derive(Debug, Clone)]
pub struct DoctorSettings {
    /// For one question to an engine; three are asked one after the other.
    pub engine: Duration,
    /// For how long a port that shows no ready agent is tried again: a boot in progress changes in it.
    pub window: Duration,
    /// For one try.
    pub per_try: Duration,
    /// Between two tries.
    pub pause: Duration,
    /// For the agent to answer a call that does nothing.
    pub call: Duration,
    /// For the run of a script that does nothing; a cold shell in an emulated guest takes its time.
    pub exec: Duration,
    /// How far the guest's clock may be off.
    pub clock: Duration,
}

impl DoctorSettings {
    /// What the command line uses.
    pub const DEFAULT: Self = Self {
        engine: Duration::from_secs(4),
        window: Duration::from_secs(3),
        per_try: Duration::from_millis(700),
        pause: Duration::from_millis(250),
        call: Duration::from_secs(2),
        exec: Duration::from_secs(8),
        clock: Duration::from_secs(2),
    };

    fn of_engine(&self) -> EngineSettings {
        EngineSettings { quick: self.engine, ..EngineSettings::DEFAULT }
    }

    fn of_client(&self) -> ClientSettings {
        ClientSettings {
            connect_deadline: self.per_try,
            proof_deadline: self.call,
            call_deadline: self.call,
            health_deadline: self.per_try,
            ..ClientSettings::DEFAULT
        }
    }
}

/// Examines a pod.
///
/// # Errors
/// Only when the examination itself cannot be made: whatever is broken is in the report.
pub async fn examine(home: &Home, pod: &Pod, settings: &DoctorSettings) -> Result<Report> {
    Ok(judge(&gather(home, pod, settings).await?))
}

/// Gathers the evidence.
///
/// # Errors
/// When the system has no randomness for a challenge, or no HTTP client can be built.
pub async fn gather(home: &Home, pod: &Pod, settings: &DoctorSettings) -> Result<Evidence> {
    // before the token is read, which would tighten a wide mode
    let (files, token) = files::gather(home, pod);
    let legs = legs::gather(pod);
    let (engine, reached) = tokio::join!(engine::gather(pod, settings), async {
        let owner = port::owner(pod);
        let (tries, clock) = port::tries(pod, token.as_ref().ok(), settings).await?;
        let ready = token.is_ok() && tries.last().is_some_and(Try::is_ready);
        let agent = if ready { Some(agent::gather(pod, settings).await?) } else { None };
        // the header has whole seconds; an agent that tells its time tells it to the microsecond
        let measured = agent.as_ref().and_then(|agent| agent.clock);
        Ok::<_, Error>((owner, tries, measured.or(clock), agent))
    });
    let (owner, tries, clock, agent) = reached?;
    Ok(Evidence {
        pod: Subject {
            name: pod.name().to_string(),
            dir: pod.dir().to_owned(),
            engine: pod.settings().engine,
            guest: pod.settings().guest,
            port: pod.settings().ports.agent,
            clock_tolerance: settings.clock,
        },
        engine,
        files,
        guest_agent: crate::host::setup::agent_fault(pod),
        token: token.map(drop).map_err(|error| error.to_string()),
        legs,
        owner,
        tries,
        agent,
        clock,
    })
}
