//! One after the other: each step is tested and set, and what came of it is written down before the next.

use std::{
    io::Write as _,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::sync::watch;

use super::{
    super::sys,
    agent,
    hook_run::{HookEnd, HookHome},
    hooks,
    lock::Lock,
    places::{self, Places},
    record::{Record, ServeSettings, hook_step, now},
    steps::{self, STEPS, Start},
    tool::Verdict,
};
use crate::{
    protocol::{RunMode, StepState},
    token::{ensure_private_dir, replace_private},
};

/// How often a hook is begun that never ends: one that reboots the guest each time would do so for ever.
const MOST_BEGUN: u32 = 5;

/// How an installation is to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything lies.
    pub places: Places,
    /// What starts the agent from now on; `None` is what the system has for this account.
    pub mode: Option<RunMode>,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Names besides loopback's that it may be called by.
    pub allow_host: Vec<String>,
    /// Networks that it lets in; its default where empty.
    pub allow_peer: Vec<String>,
    /// How long a hook may take.
    pub hook_timeout: Duration,
    /// How long the agent may take to answer once it has been started.
    pub agent_deadline: Duration,
    /// How long another installation is waited for.
    pub lock_patience: Duration,
}

impl Settings {
    /// How long a hook may take where nothing else is said.
    pub const HOOK_TIMEOUT: Duration = Duration::from_mins(30);
    /// How long the agent may take to answer, on a guest that is emulated and busy.
    pub const AGENT_DEADLINE: Duration = Duration::from_mins(1);
    /// How long another installation is waited for.
    pub const LOCK_PATIENCE: Duration = Duration::from_secs(10);
}

/// What came of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All that is required is done.
    Complete,
    /// All but the token, which the agent waits for, for this reason.
    WaitingForToken(String),
    /// A required step has failed.
    Failed {
        /// Which.
        step: String,
        /// Why.
        reason: String,
    },
    /// It was asked to stop; another run, or the agent's next start, takes it up.
    Interrupted,
}

/// Why an installation could not even be begun, or not be written down.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Another process works at it.
    #[error(
        "another installation works in {state}; `podlink agent status` shows how far it has come: wait for its end and try again"
    )]
    Busy {
        /// The folder of its state.
        state: std::path::PathBuf,
    },
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Takes all the steps, from the first; `say` is told of each, and `stop` ends it early.
///
/// # Errors
/// When another process works at it, or the state cannot be written.
pub async fn install(
    settings: Settings,
    stop: watch::Receiver<bool>,
    say: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Outcome, InstallError> {
    let state = settings.places.state.clone();
    ensure_private_dir(&state).context("the folder for the installation's state cannot be used")?;
    let _lock = wait_for_lock(&state, settings.lock_patience).await?;
    let before = Record::load(&state).unwrap_or_else(|error| {
        say(&format!("the record of an installation before this is passed over: {error:#}"));
        None
    });
    match std::fs::remove_file(places::done_file(&state)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(InstallError::Other(anyhow::Error::from(error).context("install.done could not be removed")));
        }
        _ => {}
    }
    let record = begin(&settings, before.as_ref());
    // while the record still tells how it was: what a kill leaves here another run finds again
    if let Some(before) = before.as_ref().filter(|before| before.mode() != record.mode())
        && let Verdict::Failed(reason) = sys::unregister(&Start::of(before, &state)).await
    {
        say(&format!("what has started the agent until now, {}, stays: {reason}", sys::mode_name(before.mode())));
    }
    record.save(&state)?;
    let found = hooks::find(&settings.places.hooks());
    let mut engine = Engine { record, state, log: Log::open(&settings.places.state, Arc::new(say)), stop };
    engine.log.line(&format!(
        "podlink {} installs from {}, to be started by {}",
        env!("CARGO_PKG_VERSION"),
        engine.record.bundle.display(),
        sys::mode_name(engine.record.mode())
    ));
    match found {
        Ok(found) => engine.take_hooks(found, before.as_ref())?,
        Err(error) => return Ok(engine.fail("hooks", format!("{error:#}"))?),
    }
    let outcome = engine.run(Some(settings.agent_deadline)).await?;
    if matches!(outcome, Outcome::Complete) {
        agent::until_it_sees_the_end(&engine.record.serve.listen).await;
    }
    Ok(outcome)
}

async fn wait_for_lock(state: &Path, patience: Duration) -> Result<Lock, InstallError> {
    let by = Instant::now() + patience;
    loop {
        if let Some(lock) = Lock::take(state).context("the installation's lock cannot be taken")? {
            return Ok(lock);
        }
        if Instant::now() >= by {
            return Err(InstallError::Busy { state: state.to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A record in which nothing is done yet.
fn begin(settings: &Settings, before: Option<&Record>) -> Record {
    let places = settings.places.clone();
    let mut record = Record {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: settings.mode.unwrap_or_else(sys::default_mode),
        serve: ServeSettings {
            listen: settings.listen.clone(),
            token_file: places.token_file,
            allow_host: settings.allow_host.clone(),
            allow_peer: settings.allow_peer.clone(),
        },
        bundle: places.bundle,
        exe: places.exe,
        root: places.root,
        hook_timeout_ms: u64::try_from(settings.hook_timeout.as_millis()).unwrap_or(u64::MAX),
        steps: Vec::new(),
        // until the new ones are known; a kill in between must not lose which have run
        hooks: before.map(|before| before.hooks.clone()).unwrap_or_default(),
    };
    for (name, required) in STEPS {
        record.set(name, required, StepState::Pending, None);
    }
    for step in before.iter().flat_map(|before| &before.steps).filter(|step| step.name.starts_with("hook ")) {
        record.steps.push(step.clone());
    }
    record
}

/// Takes the steps of a record; whoever has one holds the lock.
pub(super) struct Engine {
    record: Record,
    state: std::path::PathBuf,
    log: Log,
    stop: watch::Receiver<bool>,
}

impl Engine {
    /// One that takes up what another has left.
    pub(super) fn resumed(record: Record, state: &Path, stop: watch::Receiver<bool>) -> Self {
        let log = Log::open(state, Arc::new(|line: &str| tracing::info!("installation: {line}")));
        log.line(&format!("the agent, version {}, takes the installation up", env!("CARGO_PKG_VERSION")));
        Self { record, state: state.to_owned(), log, stop }
    }

    /// The hooks that there are now; those that have run and are as they were then stay done.
    fn take_hooks(&mut self, found: Vec<super::record::Hook>, before: Option<&Record>) -> anyhow::Result<()> {
        self.record.steps.retain(|step| !step.name.starts_with("hook "));
        for hook in &found {
            let name = hook_step(&hook.name);
            let known = before.and_then(|before| before.hooks.iter().find(|known| known.name == hook.name));
            let done = before.and_then(|before| before.step(&name)).filter(|step| step.state == StepState::Done);
            match (known, done) {
                (Some(known), Some(done)) if known.sha256 == hook.sha256 => self.record.steps.push(done.clone()),
                _ => self.record.set(&name, true, StepState::Pending, None),
            }
        }
        self.record.hooks = found;
        self.record.save(&self.state)
    }

    /// Takes what is not done; `start` is how long the agent may take to answer, and `None` where this is the agent.
    pub(super) async fn run(&mut self, start: Option<Duration>) -> anyhow::Result<Outcome> {
        let mut waiting = None;
        for (name, required) in STEPS {
            if *self.stop.borrow() {
                return Ok(Outcome::Interrupted);
            }
            let ended = [StepState::Done, StepState::Unavailable, StepState::Failed];
            let is_over = self.record.step(name).is_some_and(|step| ended.contains(&step.state));
            if start.is_none() && is_over {
                continue;
            }
            self.set(name, required, StepState::Running, None)?;
            let verdict = self.step(name, start).await;
            let (state, reason) = match verdict {
                Verdict::Done(said) => (StepState::Done, said),
                Verdict::Pending(reason) => {
                    waiting = Some(reason.clone());
                    (StepState::Pending, Some(reason))
                }
                Verdict::Unavailable(reason) => (StepState::Unavailable, Some(reason)),
                Verdict::Failed(reason) => (StepState::Failed, Some(reason)),
            };
            self.set(name, required, state, reason.clone())?;
            if required && state == StepState::Failed {
                return Ok(self.failed(name, reason.unwrap_or_default()));
            }
        }
        if let Some(outcome) = self.hooks().await? {
            return Ok(outcome);
        }
        if let Some(reason) = waiting {
            self.log.line("all but the token is done; the agent waits for that and then ends the installation");
            return Ok(Outcome::WaitingForToken(reason));
        }
        let done = format!("podlink {} was installed at {}\n", self.record.version, now());
        replace_private(&places::done_file(&self.state), done.as_bytes())?;
        self.log.line("install.done: the installation is complete");
        Ok(Outcome::Complete)
    }

    async fn step(&mut self, name: &str, start: Option<Duration>) -> Verdict {
        let places = self.record.places(&self.state);
        let blocking = |step: fn(&Places) -> Verdict| async move {
            tokio::task::spawn_blocking(move || step(&places)).await.unwrap_or_else(Verdict::failed)
        };
        match name {
            "firewall" => steps::firewall(&self.record).await,
            "defender" => steps::defender(&self.record.places(&self.state)).await,
            "exe" => {
                env!("CARGO_PKG_VERSION").clone_into(&mut self.record.version);
                blocking(steps::exe).await
            }
            "acl" => blocking(steps::acl).await,
            "token" => blocking(steps::token).await,
            "autostart" => steps::autostart(&self.record, &self.state).await,
            _ => match start {
                Some(deadline) => agent::ensure_runs(&self.record, &self.state, deadline).await,
                None => Verdict::Done(Some(format!("pid {}", std::process::id()))),
            },
        }
    }

    /// Runs those that have not run; `Some` where that ends the installation.
    async fn hooks(&mut self) -> anyhow::Result<Option<Outcome>> {
        let places = self.record.places(&self.state);
        let mut home = None;
        for at in 0..self.record.hooks.len() {
            let name = hook_step(&self.record.hooks[at].name);
            if self.record.step(&name).is_some_and(|step| step.state == StepState::Done) {
                continue;
            }
            if *self.stop.borrow() {
                return Ok(Some(Outcome::Interrupted));
            }
            let hook = self.record.hooks[at].clone();
            let checked = places.clone();
            let of = hook.clone();
            let checked = tokio::task::spawn_blocking(move || hooks::check(&checked.hooks(), &of)).await;
            if let Err(error) = checked.map_err(anyhow::Error::from).and_then(|checked| checked) {
                return self.fail(&name, format!("{error:#}")).map(Some);
            }
            if hook.begun >= MOST_BEGUN {
                let reason = format!("it was begun {MOST_BEGUN} times and has never come to its end");
                return self.fail(&name, reason).map(Some);
            }
            self.record.hooks[at].begun += 1;
            self.set(&name, true, StepState::Running, None)?;
            let home = match &mut home {
                Some(home) => home,
                empty => empty.insert(HookHome::open(&self.state).await?),
            };
            let end = home.run(&hook, &places, self.record.hook_timeout(), self.stop.clone()).await;
            self.record.hooks[at].begun = match end {
                Ok(HookEnd::Interrupted) => self.record.hooks[at].begun,
                _ => 0,
            };
            match end {
                Ok(HookEnd::Succeeded) => self.set(&name, true, StepState::Done, None)?,
                Ok(HookEnd::Failed(reason)) => return self.fail(&name, reason).map(Some),
                Ok(HookEnd::Interrupted) => {
                    self.log.line(&format!("{name}: ended, since whoever installs was asked to end"));
                    return Ok(Some(Outcome::Interrupted));
                }
                Err(error) => return self.fail(&name, format!("{error:#}")).map(Some),
            }
        }
        Ok(None)
    }

    /// Writes the failure of a required step down.
    fn fail(&mut self, step: &str, reason: String) -> anyhow::Result<Outcome> {
        self.set(step, true, StepState::Failed, Some(reason.clone()))?;
        Ok(self.failed(step, reason))
    }

    fn failed(&self, step: &str, reason: String) -> Outcome {
        self.log.line(&format!("the installation ends here: {step} is required; run it again once that is mended"));
        Outcome::Failed { step: step.to_owned(), reason }
    }

    fn set(&mut self, step: &str, required: bool, state: StepState, reason: Option<String>) -> anyhow::Result<()> {
        let word = match state {
            StepState::Pending => "pending",
            StepState::Running => "…",
            StepState::Done => "done",
            StepState::Unavailable => "unavailable",
            StepState::Failed | StepState::Unknown => "failed",
        };
        let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        self.record.set(step, required, state, reason);
        self.record.save(&self.state)?;
        if state != StepState::Running {
            self.log.line(&format!("{step}: {word}{why}"));
        }
        Ok(())
    }
}

/// What became of each step, on disk and for whoever looks on.
struct Log {
    file: Option<std::fs::File>,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Log {
    fn open(state: &Path, say: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        let file = sys::open_private_append(&places::log_file(state))
            .inspect_err(|error| say(&format!("install.log cannot be written: {error}")))
            .ok();
        Self { file, say }
    }

    fn line(&self, text: &str) {
        (self.say)(text);
        if let Some(mut file) = self.file.as_ref() {
            drop(writeln!(file, "{} {text}", now())); // it is told otherwise too
        }
    }
}
