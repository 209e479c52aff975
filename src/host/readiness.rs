//! The wait for readiness: `/health` decides, everything else only explains or ends the wait early.
//!
//! Ready means: HTTP 200 from an agent that proves the pod's token, and one authorized call answered. Each try has a
//! new connection and a short deadline, because a forwarder takes connections before the guest listens and answers
//! on those far too late or never.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use super::{
    AgentClient, Error, ErrorKind, Result,
    client::{Seen, stage_sentence},
    engine::ContainerState,
};
use crate::protocol::{Health, Stage};

/// How long, how often, and how patient.
#[derive(Debug, Clone)]
pub struct WaitSettings {
    /// The whole wait.
    pub timeout: Duration,
    /// The pause after the first try; it doubles up to `max_pause`.
    pub first_pause: Duration,
    /// The longest pause between tries.
    pub max_pause: Duration,
    /// The pause between two questions to the engine.
    pub engine_interval: Duration,
    /// For the engine to answer.
    pub engine_deadline: Duration,
    /// How long another program's complete answers are put down to a start in progress.
    pub foreign_patience: Duration,
    /// How long another token is put down to an agent that is just reading a changed file.
    pub mismatch_patience: Duration,
}

impl WaitSettings {
    /// What the command line uses, with its default time-out.
    pub const DEFAULT: Self = Self {
        timeout: Duration::from_mins(10),
        first_pause: Duration::from_millis(100),
        max_pause: Duration::from_millis(500),
        engine_interval: Duration::from_secs(2),
        engine_deadline: Duration::from_secs(5),
        foreign_patience: Duration::from_secs(10),
        mismatch_patience: Duration::from_secs(3),
    };
    /// The time-out while a new disk is being installed.
    pub const NEW_DISK: Duration = Duration::from_hours(2);
}

/// What the wait is at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStage {
    /// The container is not running (yet), and nothing answers.
    Container(ContainerState),
    /// Nothing listens on the agent's port.
    NothingListens,
    /// The port is forwarded and no agent answers behind it.
    AgentSilent,
    /// Something else answers.
    Foreign {
        /// What, in a few words.
        what: String,
    },
    /// An agent answers that holds another token.
    TokenMismatch,
    /// The agent answers and says what it is at.
    Agent {
        /// Its stage.
        stage: Stage,
        /// What it waits for.
        waiting_for: Vec<String>,
    },
    /// Calls are served.
    Ready,
}

impl fmt::Display for WaitStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(state) => write!(f, "the container {}", container_sentence(*state)),
            Self::NothingListens => f.write_str("nothing listens on the agent's port"),
            Self::AgentSilent => f.write_str("port forwarded, agent not answering"),
            Self::Foreign { what } => write!(f, "something else answers on the agent's port: {what}"),
            Self::TokenMismatch => f.write_str("agent up, token mismatch"),
            Self::Agent { stage, waiting_for } => f.write_str(&stage_sentence(*stage, waiting_for)),
            Self::Ready => f.write_str("ready"),
        }
    }
}

/// A container's state, to be put behind "the container".
fn container_sentence(state: ContainerState) -> String {
    match state {
        ContainerState::Absent => "does not exist".to_owned(),
        ContainerState::Created => "is made and not started yet".to_owned(),
        ContainerState::Running => "runs".to_owned(),
        ContainerState::Paused => "is paused".to_owned(),
        ContainerState::Stopping => "is going down".to_owned(),
        ContainerState::Exited { code: Some(code) } => format!("has ended with code {code}"),
        ContainerState::Exited { code: None } => "has ended".to_owned(),
        ContainerState::Unknown => "is in an unknown state".to_owned(),
    }
}

/// What a waiting caller is told after each try.
#[derive(Debug, Clone)]
pub struct Progress {
    /// What the wait is at.
    pub stage: WaitStage,
    /// Since the wait began.
    pub elapsed: Duration,
}

/// What the engine said last.
#[derive(Debug, Default)]
struct Engine {
    state: Option<ContainerState>,
    /// Looks in a row that found it ended: a restart policy may bring it back at once.
    ended: u32,
    error: Option<Error>,
}

/// Waits until the agent serves calls; `container` asks the engine, and `progress` is told after each try.
///
/// # Errors
/// [`ErrorKind::WaitTimedOut`], [`ErrorKind::NoContainer`], [`ErrorKind::TokenMismatch`],
/// [`ErrorKind::ForeignProgram`], [`ErrorKind::InstallFailed`]; [`ErrorKind::Engine`] where nothing answers and the
/// engine cannot say why.
pub async fn wait_ready<Probe, Asked>(
    client: &AgentClient,
    container: Probe,
    settings: &WaitSettings,
    mut progress: impl FnMut(&Progress),
) -> Result<Health>
where
    Probe: Fn() -> Asked,
    Asked: Future<Output = Result<ContainerState>>,
{
    let engine = std::cell::RefCell::new(Engine::default());
    let last = std::cell::RefCell::new(WaitStage::NothingListens);
    let watched = watch_engine(&container, settings, &engine);
    let polled = poll(client, settings, &engine, &last, &mut progress);
    tokio::select! {
        biased;
        health = polled => health,
        never = watched => match never {},
        () = tokio::time::sleep(settings.timeout) => Err(timed_out(client, settings.timeout, &last.borrow(), &engine.borrow())),
    }
}

/// Asks the engine again and again, beside the tries.
async fn watch_engine<Asked: Future<Output = Result<ContainerState>>>(
    container: &impl Fn() -> Asked,
    settings: &WaitSettings,
    engine: &std::cell::RefCell<Engine>,
) -> std::convert::Infallible {
    loop {
        let asked = tokio::time::timeout(settings.engine_deadline, container()).await;
        {
            let mut engine = engine.borrow_mut();
            engine.error = None;
            match asked {
                Ok(Ok(state)) => {
                    let ended = matches!(state, ContainerState::Exited { .. });
                    engine.ended = if ended { engine.ended + 1 } else { 0 };
                    engine.state = Some(state);
                }
                Ok(Err(error)) => engine.error = Some(error),
                Err(_) => engine.state = Some(ContainerState::Unknown), // a busy engine is no sign of anything
            }
        }
        tokio::time::sleep(settings.engine_interval).await;
    }
}

/// Tries until ready or hopeless.
async fn poll(
    client: &AgentClient,
    settings: &WaitSettings,
    engine: &std::cell::RefCell<Engine>,
    last: &std::cell::RefCell<WaitStage>,
    progress: &mut impl FnMut(&Progress),
) -> Result<Health> {
    let begun = Instant::now();
    let mut pause = settings.first_pause;
    let (mut foreign, mut mismatch) = (Since::default(), Since::default());
    loop {
        let seen = look(client).await?;
        let stage = stage_of(&seen, engine.borrow().state);
        let ready = stage == WaitStage::Ready;
        *last.borrow_mut() = stage.clone();
        progress(&Progress { stage, elapsed: begun.elapsed() });
        if let (true, Seen::Ready(health)) = (ready, &seen) {
            return Ok(health.clone());
        }

        let complete = matches!(seen, Seen::Foreign { status: Some(status), .. } if status < 500);
        let mismatched = matches!(seen, Seen::TokenMismatch(_));
        let patience_ended = foreign.holds_for(complete) > Some(settings.foreign_patience)
            || mismatch.holds_for(mismatched) > Some(settings.mismatch_patience);
        let failed = matches!(&seen, Seen::NotReady(health) if health.stage == Stage::InstallFailed);
        if patience_ended || failed {
            return Err(client.error_of(&seen));
        }
        if matches!(seen, Seen::Refused | Seen::Reset | Seen::Silent) {
            gone(client, &seen, &mut engine.borrow_mut())?;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(settings.max_pause);
    }
}

/// One try: `/health`, and where that is 200 one authorized call.
async fn look(client: &AgentClient) -> Result<Seen> {
    let seen = client.health().await?;
    let Seen::Ready(health) = seen else { return Ok(seen) };
    // a connection, its proof and the call: twice what a look takes
    let checked = tokio::time::timeout(client.settings().health_deadline * 2, client.check_token()).await;
    Ok(match checked {
        Err(_) => Seen::Silent,
        Ok(Ok(())) => Seen::Ready(health),
        Ok(Err(error)) => match error.kind() {
            ErrorKind::TokenMismatch => Seen::TokenMismatch(health),
            ErrorKind::Refused => Seen::Refused,
            ErrorKind::Silent => Seen::Silent,
            ErrorKind::ForeignProgram => Seen::Foreign { status: Some(200), what: error.to_string() },
            ErrorKind::NotReady | ErrorKind::InstallFailed | ErrorKind::AgentStopping => {
                Seen::NotReady(Health { ok: false, stage: Stage::Unknown, ..health })
            }
            ErrorKind::Reset => Seen::Reset,
            _ => return Err(error),
        },
    })
}

fn stage_of(seen: &Seen, container: Option<ContainerState>) -> WaitStage {
    let container = container.filter(|state| !matches!(state, ContainerState::Running | ContainerState::Unknown));
    match (seen, container) {
        (Seen::Refused | Seen::Reset | Seen::Silent, Some(state)) => WaitStage::Container(state),
        (Seen::Refused, None) => WaitStage::NothingListens,
        (Seen::Reset | Seen::Silent, None) => WaitStage::AgentSilent,
        (Seen::Ready(_), _) => WaitStage::Ready,
        (Seen::NotReady(health), _) => {
            WaitStage::Agent { stage: health.stage, waiting_for: health.waiting_for.clone() }
        }
        (Seen::TokenMismatch(_), _) => WaitStage::TokenMismatch,
        (Seen::Foreign { what, .. }, _) => WaitStage::Foreign { what: what.clone() },
    }
}

/// Ends the wait where nothing answers and the engine knows that nothing will.
fn gone(client: &AgentClient, seen: &Seen, engine: &mut Engine) -> Result<()> {
    let pod = client.pod_flag();
    let hint = format!("start it with `podlink pod up{pod}`");
    match engine.state {
        Some(state @ ContainerState::Absent) => {
            Err(Error::new(ErrorKind::NoContainer, format!("the container {}", container_sentence(state)))
                .with_hint(hint))
        }
        Some(state @ ContainerState::Exited { .. }) if engine.ended >= 2 => {
            Err(Error::new(ErrorKind::NoContainer, format!("the container {}", container_sentence(state)))
                .with_hint(format!("`podlink pod logs{pod}` says why; {hint}")))
        }
        // refused at the first leg and nobody to ask: waiting would only hide the cause
        _ if *seen == Seen::Refused => engine.error.take().map_or(Ok(()), Err),
        _ => Ok(()),
    }
}

fn timed_out(client: &AgentClient, timeout: Duration, last: &WaitStage, engine: &Engine) -> Error {
    let pod = client.pod_flag();
    let hint = match last {
        WaitStage::NothingListens => {
            "nothing listens on the host: check that the container runs and that compose.yaml publishes the port (`ports:`)".to_owned()
        }
        WaitStage::AgentSilent => {
            "the host's leg stands, the guest's does not: check USER_PORTS in compose.yaml, the guest's firewall, and that the agent runs in the guest and listens beyond its loopback".to_owned()
        }
        WaitStage::Container(ContainerState::Paused) => {
            format!("the container is paused: let it run on with `podlink pod resume{pod}`")
        }
        WaitStage::Container(_) => format!("see the container's log with `podlink pod logs{pod}`"),
        WaitStage::Agent { .. } => {
            "both legs stand and the agent answers: look at the installation's log in the guest".to_owned()
        },
        _ => format!("look at `podlink pod status{pod}`"),
    };
    let address = client.address();
    let detail = format!("not ready after {:.1} s on {address}; last seen: {last}", timeout.as_secs_f64());
    let error = Error::new(ErrorKind::WaitTimedOut, detail).with_hint(hint);
    match &engine.error {
        Some(engine) => error.with_source(format!("the engine could not be asked: {engine}")),
        None => error,
    }
}

/// For how long something has held without a break.
#[derive(Default)]
struct Since(Option<Instant>);

impl Since {
    fn holds_for(&mut self, holds: bool) -> Option<Duration> {
        self.0 = if holds { Some(self.0.unwrap_or_else(Instant::now)) } else { None };
        self.0.map(|since| since.elapsed())
    }
}
