//! A tiny parent that keeps an agent alive: it starts one, and starts it again where it ends without having been told.
//!
//! ```text
//! starting ──▶ running ──crashed──▶ pausing ──▶ starting        (the pause doubles while it keeps crashing)
//!                 │                     │
//!                 ├──asked to restart──────▶ starting             (at once)
//!                 ├──ended in order─────┼──▶ ended              (0: told to stop, or another agent runs there already)
//!                 └──told to stop───────┘
//! ```
//!
//! The parent answers no calls and knows no token; all it does is wait. Between the two there is a pipe, the agent's stdin: what the
//! parent is told by the system it passes on through it, and an agent whose parent has been killed goes on by itself.

mod backoff;
mod last_words;
mod lead;

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin},
};

pub use backoff::Backoff;
use last_words::LastWords;
pub use lead::{Lead, hear_supervisor};

use super::{RESTART_CODE, Signals, sys};

/// What is kept alive, and how.
#[derive(Debug, Clone)]
pub struct SupervisorSettings {
    /// The executable. It is looked up anew at each start, so that a newer version in its place is the next one to run.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Whether what the agent says on stderr is passed on by way of this process, which then can tell it as the reason
    /// of an end; else the agent has this process' own.
    pub hear_stderr: bool,
    /// The pauses.
    pub backoff: Backoff,
    /// How long an agent that was told three times to stop may take before it is killed.
    pub kill_after: Duration,
}

impl SupervisorSettings {
    /// One that starts this program.
    pub const fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Self { program, args, hear_stderr: false, backoff: Backoff::DEFAULT, kill_after: Duration::from_secs(2) }
    }
}

/// How often an agent is told to stop before nothing is left but to kill it.
const TOLD_ENOUGH: u32 = 3;

/// Keeps an agent alive until it ends in order or `signals` asks for its end; returns its exit code.
///
/// # Errors
/// When the agent cannot be started at all. Once it has run, that is waited out like a crash: an update may be replacing
/// its file.
pub async fn supervise(settings: SupervisorSettings, signals: &mut Signals) -> anyhow::Result<u8> {
    let orphans = tokio::spawn(sys::reap_orphans());
    let code = keep_alive(&settings, signals).await;
    orphans.abort();
    code
}

async fn keep_alive(settings: &SupervisorSettings, signals: &mut Signals) -> anyhow::Result<u8> {
    let mut backoff = settings.backoff.begin();
    let mut has_run = false;
    loop {
        let begun = Instant::now();
        let why = match Running::start(settings) {
            Ok(running) => {
                has_run = true;
                match running.until_it_ends(settings, signals).await? {
                    End::Ordered(code) => return Ok(code),
                    End::ToRestart => {
                        tracing::info!("the agent has ended to be started again, as it was asked to");
                        continue;
                    }
                    End::Crashed(why) => why,
                }
            }
            Err(error) if has_run => format!("it cannot be started: {error:#}"),
            Err(error) => return Err(error),
        };
        let lived = begun.elapsed();
        let pause = backoff.after(lived);
        tracing::error!(
            lived_sec = lived.as_secs_f64(),
            again_in_sec = pause.as_secs_f64(),
            restarts = backoff.count(),
            "the agent is gone: {why}; starting it again"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = signals.next() => {
                tracing::info!("told to stop while no agent ran");
                return Ok(0);
            }
        }
    }
}

/// What became of one agent.
enum End {
    /// With this exit code, and nothing is to follow.
    Ordered(u8),
    /// A caller has asked for another.
    ToRestart,
    /// Why.
    Crashed(String),
}

/// An agent that runs.
struct Running {
    child: Child,
    /// Written to, it tells the agent to stop; closed, that this process is gone.
    lead: Option<ChildStdin>,
    last_words: Option<LastWords>,
    _waited_for: Option<sys::WaitedFor>,
}

impl Running {
    fn start(settings: &SupervisorSettings) -> anyhow::Result<Self> {
        let mut command = sys::ours_apart(&settings.program);
        command.args(&settings.args).stdin(Stdio::piped());
        if settings.hear_stderr {
            command.stderr(Stdio::piped());
        }
        let mut child =
            command.spawn().with_context(|| format!("cannot start the agent, {}", settings.program.display()))?;
        let pid = child.id();
        tracing::info!(agent_pid = pid, supervisor_pid = std::process::id(), "supervising an agent");
        Ok(Self {
            lead: child.stdin.take(),
            last_words: child.stderr.take().map(LastWords::listen),
            _waited_for: pid.map(sys::WaitedFor::new),
            child,
        })
    }

    async fn until_it_ends(mut self, settings: &SupervisorSettings, signals: &mut Signals) -> anyhow::Result<End> {
        let mut told = 0_u32;
        let status = loop {
            let too_late = async {
                if told < TOLD_ENOUGH {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(settings.kill_after).await;
            };
            tokio::select! {
                status = self.child.wait() => break status.context("the agent cannot be waited for")?,
                signal = signals.next() => {
                    told += 1;
                    tracing::info!(?signal, "passing on to the agent that it is to stop");
                    self.tell(settings.kill_after).await;
                }
                () = too_late => {
                    tracing::error!("the agent was told {told} times to stop and does not: killing it");
                    self.child.kill().await.context("the agent cannot be killed")?;
                }
            }
        };
        let said = match self.last_words.take() {
            Some(words) => words.take().await,
            None => String::new(),
        };
        Ok(judge(status, told > 0, &said))
    }

    /// Passes the request on. An agent that does not take it is on its way out, or hangs and will be killed.
    async fn tell(&mut self, patience: Duration) {
        if let Some(lead) = &mut self.lead {
            let written = async {
                lead.write_all(lead::STOP).await?;
                lead.flush().await
            };
            if !matches!(tokio::time::timeout(patience, written).await, Ok(Ok(()))) {
                tracing::warn!("the agent could not be told");
            }
        }
    }
}

fn judge(status: ExitStatus, told: bool, said: &str) -> End {
    if status.success() {
        tracing::info!("the agent has ended in order, and so does its supervisor");
        return End::Ordered(0);
    }
    let how = sys::how_it_ended(status);
    if told {
        tracing::warn!("the agent has ended by {how}, having been told to stop");
        return End::Ordered(sys::exit_code(status));
    }
    if status.code() == Some(RESTART_CODE.into()) {
        return End::ToRestart;
    }
    End::Crashed(if said.is_empty() { how } else { format!("{how}; it said: {said}") })
}
