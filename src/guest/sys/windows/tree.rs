//! All processes of one call, however they try to get away, and their end: a job object.
//!
//! Implementation note: Windows itself keeps who belongs to a job, so nothing has to be proven. Nobody leaves it, unless
//! the call lets its programs (`allow_breakaway`). Its name lives for as long as somebody has a handle to it: the agent
//! has, and so has the call's own program, so that an agent that follows one that crashed finds the job of a call whose
//! program still runs. What other processes a call has left behind when its program ends is nobody's any more.

use std::{
    collections::BTreeSet,
    io,
    os::windows::io::{AsHandle as _, BorrowedHandle, OwnedHandle},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    create_process::terminate, environment, handle::duplicate, interrupt, job::Job, signal_names::SignalNumber,
    wait::has_happened,
};

/// The variable that marks a call's processes, for people who look at one; its value is the call's process id.
pub(super) const MARK: &str = "PODLINK_CALL";

/// How long those who have been ended are waited for before they are named as survivors.
const KILL_DEADLINE: Duration = Duration::from_secs(3);

/// The exit code of those who are ended: 128 and the number of the KILL that ends them elsewhere.
const KILLED: u32 = 128 + 9;

/// Where calls' trees are made.
#[derive(Debug)]
pub(crate) struct TreeHome {
    /// The executable whose `agent interrupt` types a Ctrl-C; `None` goes without.
    program: Option<PathBuf>,
}

impl TreeHome {
    /// Finds out what this system offers.
    pub(crate) fn detect(_agent_id: &str, _use_cgroups: bool, program: Option<&Path>) -> Self {
        environment::remember();
        interrupt::let_children_be_interrupted();
        Self { program: program.map(Path::to_owned) }
    }

    /// What holds the processes of a call: `job`.
    #[expect(clippy::unused_self, reason = "the Unix half has a choice")]
    pub(crate) const fn kind(&self) -> &'static str {
        "job"
    }

    /// The tree of a new call.
    pub(crate) fn plant(&self, process_id: &str) -> CallTree {
        CallTree { process_id: process_id.to_owned(), program: self.program.clone(), job: None, leader: None }
    }

    /// The tree of a call that an agent which crashed had not ended.
    pub(crate) fn find(&self, process_id: &str) -> CallTree {
        let job = Job::open(&name_of(process_id));
        CallTree { process_id: process_id.to_owned(), program: self.program.clone(), job, leader: None }
    }
}

fn name_of(process_id: &str) -> String {
    format!("podlink-{process_id}")
}

/// What came of ending a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Processes that were alive when it began, or turned up meanwhile, and are dead.
    pub killed: u64,
    /// Processes that are alive all the same.
    pub survivors: Vec<u32>,
}

/// The processes of one call.
#[derive(Debug)]
pub(crate) struct CallTree {
    process_id: String,
    program: Option<PathBuf>,
    job: Option<Job>,
    leader: Option<Leader>,
}

/// The program itself; its number is not given to another process while the handle is open.
#[derive(Debug)]
struct Leader {
    process: OwnedHandle,
    pid: u32,
}

impl CallTree {
    /// The value of the variable that marks its processes.
    pub(super) fn mark(&self) -> &str {
        &self.process_id
    }

    /// Puts the program, which has not taken a step, into the tree.
    pub(super) fn take_in(&mut self, process: BorrowedHandle<'_>, pid: u32, allow_breakaway: bool) -> io::Result<()> {
        let job = Job::create(&name_of(&self.process_id), allow_breakaway)?;
        job.take_in(process)?;
        job.be_kept_by(process)?;
        self.job = Some(job);
        self.leader = Some(Leader { process: duplicate(process)?, pid });
        Ok(())
    }

    /// The process number of the program itself.
    pub(crate) fn leader(&self) -> Option<u32> {
        self.leader.as_ref().map(|leader| leader.pid)
    }

    fn living_leader(&self) -> io::Result<&Leader> {
        let lives = |leader: &&Leader| !has_happened(leader.process.as_handle());
        self.leader.as_ref().filter(lives).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has ended"))
    }

    /// Sends a signal to the program, which must not have ended.
    pub(crate) fn signal_leader(&self, signal: SignalNumber) -> io::Result<()> {
        let leader = self.living_leader()?;
        match signal {
            SignalNumber::Interrupt => self.interrupter()?(),
            SignalNumber::End(code) => terminate(leader.process.as_handle(), code),
        }
    }

    /// Sends a signal to everybody in it, and tells how many got it. A Ctrl-C is one for all of a console.
    pub(crate) fn signal_all(&self, signal: SignalNumber) -> u64 {
        let Some(job) = &self.job else { return 0 };
        match signal {
            SignalNumber::Interrupt => {
                let members = job.members().len() as u64;
                if self.interrupter().and_then(|interrupt| interrupt()).is_ok() { members } else { 0 }
            }
            SignalNumber::End(code) => {
                let ended = |process: &OwnedHandle| terminate(process.as_handle(), code).is_ok();
                job.open_members().iter().filter(|process| ended(process)).count() as u64
            }
        }
    }

    /// Who is alive of it.
    #[cfg(test)]
    pub(super) fn members(&self) -> Vec<u32> {
        self.job.as_ref().map(Job::members).unwrap_or_default()
    }

    /// What types a Ctrl-C in the program's console; it blocks for as long as a process takes that does it.
    fn interrupter(&self) -> io::Result<impl FnOnce() -> io::Result<()> + Send + 'static> {
        let pid = self.living_leader()?.pid;
        let program = self.program.clone().ok_or(io::ErrorKind::Unsupported)?;
        Ok(move || interrupt::interrupt(&program, pid))
    }

    /// Ends everybody in it: a Ctrl-C, and an end without further question once `by` has come, until nobody is left. What
    /// `by` says may change meanwhile. Programs without a console are asked nothing and get no time.
    pub(crate) async fn end(&self, by: impl Fn() -> Instant + Send) -> Ended {
        let Some(job) = &self.job else { return Ended::default() };
        let mut seen: BTreeSet<u32> = job.members().into_iter().collect();
        if Instant::now() < by() {
            let asked = match self.interrupter() {
                Ok(interrupt) => tokio::task::spawn_blocking(interrupt).await.unwrap_or_else(|error| Err(error.into())),
                Err(error) => Err(error),
            };
            match asked {
                Ok(()) => until(by, || nobody_is_in(job)).await,
                Err(error) => tracing::debug!(%error, "a call's programs are ended without being asked"),
            }
        }
        seen.extend(job.members());
        if let Err(error) = job.terminate(KILLED) {
            tracing::error!(%error, "a call's job could not be ended");
        }
        let deadline = Instant::now() + KILL_DEADLINE;
        until(|| deadline, || nobody_is_in(job)).await;
        let survivors = job.members();
        if !survivors.is_empty() {
            tracing::error!(?survivors, "processes of a killed call are still alive");
        }
        let killed = seen.iter().filter(|pid| !survivors.contains(pid)).count();
        Ended { killed: killed as u64, survivors }
    }

    /// Gives up what holds it; processes that live on are not disturbed. It need never be asked again.
    #[expect(clippy::unused_self, reason = "dropping it is all")]
    pub(crate) const fn release(&self) -> bool {
        true
    }
}

fn nobody_is_in(job: &Job) -> bool {
    match job.active() {
        Ok(count) => count == 0,
        Err(error) => {
            tracing::error!(%error, "a call's job could not be asked who is in it");
            true
        }
    }
}

async fn until(by: impl Fn() -> Instant + Send, holds: impl Fn() -> bool + Send) {
    let mut pause = Duration::from_millis(1);
    while !holds() && Instant::now() < by() {
        tokio::time::sleep(pause.min(by().saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
