//! All processes of one call, however they try to get away, and their end.
//!
//! Implementation note: membership has to be *proven* before anything is killed, or a call could take another
//! call's survivor with it. Where cgroups can be written the kernel proves it. Elsewhere it is a subreaper of the call's
//! own, to which all orphans of the call fall, so that everybody is its provable descendant; and should somebody kill
//! that, a mark in the environment, the leader's session, or descent from a process with one of the two.

use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use tokio::process::Command;

use super::{
    cgroup::{Cgroup, CgroupHome},
    process_table::{self, Identity, Proofs, Proven},
    signal_names::SignalNumber,
    spawn,
    subreaper::{self, Plan, Subreaper},
};

/// The variable that marks a call's processes; its value is the call's process id.
pub(super) const MARK: &str = "PODLINK_CALL";

/// How long killing goes on before those left are named as survivors. Only a process in an uninterruptible system
/// call takes that long.
const KILL_DEADLINE: Duration = Duration::from_secs(3);

/// Where calls' trees are made.
#[derive(Debug)]
pub(crate) struct TreeHome {
    cgroups: Option<CgroupHome>,
    /// Whether a call without a cgroup gets a subreaper.
    subreapers: bool,
    /// Where this process' environment lies.
    environment: Option<(usize, usize)>,
}

impl TreeHome {
    /// Finds out what this system offers; `use_cgroups: false` leaves cgroups alone.
    pub(crate) fn detect(agent_id: &str, use_cgroups: bool) -> Self {
        let cgroups = if use_cgroups { CgroupHome::detect(agent_id) } else { None };
        let subreapers = subreaper::available();
        tracing::debug!(?cgroups, subreapers, "how calls' processes are told apart");
        Self { cgroups, subreapers, environment: subreaper::environment_area() }
    }

    /// What holds the processes of a call: `cgroup`, `subreaper` or `environment`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self { cgroups: Some(_), .. } => "cgroup",
            Self { subreapers: true, .. } => "subreaper",
            _ => "environment",
        }
    }

    /// The tree of a new call.
    pub(crate) fn plant(&self, process_id: &str) -> CallTree {
        let cgroup = self.cgroups.as_ref().and_then(|home| {
            home.create(process_id)
                .inspect_err(
                    |error| tracing::warn!(%error, "no cgroup for this call; its environment marks it instead"),
                )
                .ok()
        });
        let holder = match cgroup {
            Some(cgroup) => Holder::Cgroup(cgroup),
            None if self.subreapers => Holder::NewSubreaper { environment: self.environment },
            None => Holder::Nothing,
        };
        CallTree { mark: format!("{MARK}={process_id}"), holder, leader: None }
    }

    /// The tree of a call that an agent which crashed had not ended.
    pub(crate) fn find(&self, process_id: &str) -> CallTree {
        let cgroup = self.cgroups.as_ref().and_then(|home| home.find(process_id));
        let mark = format!("{MARK}={process_id}");
        let holder = match cgroup {
            Some(cgroup) => Holder::Cgroup(cgroup),
            None => process_table::subreaper_of(&mark, subreaper::NAME).map_or(Holder::Nothing, Holder::Subreaper),
        };
        CallTree { mark, holder, leader: None }
    }
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
    mark: String,
    holder: Holder,
    leader: Option<Identity>,
}

/// What keeps the processes of a call together, beside their mark.
#[derive(Debug)]
enum Holder {
    Cgroup(Cgroup),
    /// One that the call's command will fork.
    NewSubreaper {
        environment: Option<(usize, usize)>,
    },
    /// One that the spawn has perhaps forked.
    Spawned(Subreaper),
    Subreaper(Identity),
    Nothing,
}

impl CallTree {
    /// Makes the command start inside the tree. What else is to be done between fork and exec in the program's own
    /// process has to be asked for after this.
    pub(crate) fn hold(&mut self, command: &mut Command) -> io::Result<()> {
        let (key, value) = self.mark.split_once('=').unwrap_or((&self.mark, ""));
        command.env(key, value);
        let (mut join, mut below) = (None, None);
        match &self.holder {
            Holder::Cgroup(cgroup) => join = Some(cgroup.join_file()?),
            Holder::NewSubreaper { environment } => {
                let (subreaper, report) = Subreaper::new()?;
                below = Some(Plan { report, mark: self.mark.clone(), environment: *environment });
                self.holder = Holder::Spawned(subreaper);
            }
            Holder::Spawned(_) | Holder::Subreaper(_) | Holder::Nothing => {}
        }
        spawn::in_session_of_its_own(command, join, below);
        Ok(())
    }

    /// Says which child the command has become, once it has been started; to be called before it is waited for.
    pub(crate) fn led_by(&mut self, child: u32) {
        let mut leader = Some(child);
        self.holder = match std::mem::replace(&mut self.holder, Holder::Nothing) {
            Holder::Spawned(subreaper) => {
                leader = subreaper.leader();
                Identity::of(child).map_or(Holder::Nothing, Holder::Subreaper)
            }
            other => other,
        };
        self.leader = leader.and_then(Identity::of);
    }

    /// The process number of the program itself, which need not be that of the child; `None` where it has ended
    /// before it could be looked at.
    pub(crate) fn leader(&self) -> Option<u32> {
        self.leader.map(|leader| leader.pid)
    }

    /// Sends a signal to the program, which must not have ended.
    pub(crate) fn signal_leader(&self, signal: SignalNumber) -> io::Result<()> {
        let gone = || io::Error::from(Errno::SRCH);
        let leader = self.leader.ok_or_else(gone)?;
        let pid = Pid::from_raw(leader.pid.cast_signed()).ok_or_else(gone)?;
        let handle = pidfd_open(pid, PidfdFlags::empty());
        // looked at after it has been opened: what it stands for cannot change any more
        if !leader.lives() {
            return Err(gone());
        }
        Ok(match handle {
            Ok(handle) => pidfd_send_signal(handle, signal.raw()),
            Err(Errno::SRCH) => return Err(gone()),
            Err(_) => kill_process(pid, signal.raw()), // Linux before 5.3, or a filter that knows none of this
        }?)
    }

    /// Sends a signal to everybody in it, and tells how many got it.
    pub(crate) fn signal_all(&self, signal: SignalNumber) -> u64 {
        self.members(&mut Proven::default()).into_iter().filter(|pid| send(*pid, signal.raw())).count() as u64
    }

    /// Who is alive of it. A process that root has moved out of the cgroup still bears the mark, so both are asked.
    fn members(&self, proven: &mut Proven) -> Vec<u32> {
        let proofs = Proofs { mark: &self.mark, leader: self.leader, subreaper: self.subreaper() };
        let mut members = process_table::members(proofs, proven);
        if let Holder::Cgroup(cgroup) = &self.holder {
            // a zombie stays listed until it is reaped, and is dead all the same
            members.extend(cgroup.members().into_iter().filter(|pid| !process_table::is_dead(*pid)));
            members.sort_unstable();
            members.dedup();
        }
        members
    }

    const fn subreaper(&self) -> Option<Identity> {
        if let Holder::Subreaper(subreaper) = &self.holder { Some(*subreaper) } else { None }
    }

    /// The subreaper where it lives. Asked to stay it does so until nobody is left, whatever `members` has found.
    fn living_subreaper(&self) -> Option<u32> {
        self.subreaper().filter(|subreaper| subreaper.lives()).map(|subreaper| subreaper.pid)
    }

    /// Ends everybody in it: TERM, `grace`, KILL, until nobody is left. The child must not have been waited for.
    pub(crate) async fn end(&self, grace: Duration) -> Ended {
        let begun = Instant::now();
        if let Some(subreaper) = self.living_subreaper() {
            // or it would let go of everybody when the leader is among the first to die
            subreaper::stay(subreaper);
        }
        let mut proven = Proven::default();
        let mut members = self.members(&mut proven);
        let mut seen: BTreeSet<u32> = members.iter().copied().collect();
        if !grace.is_zero() {
            signal(&members, Signal::TERM);
            // a stopped process takes the TERM only when it goes on
            signal(&members, Signal::CONT);
        }
        let mut pause = Duration::from_millis(1);
        while self.anybody(&members) && begun.elapsed() < grace {
            tokio::time::sleep(pause.min(grace)).await;
            pause = (pause * 2).min(Duration::from_millis(20));
            members = self.members(&mut proven);
            seen.extend(&members);
        }
        let deadline = Instant::now() + KILL_DEADLINE;
        pause = Duration::from_millis(1);
        while self.anybody(&members) && Instant::now() < deadline {
            if let Holder::Cgroup(cgroup) = &self.holder {
                cgroup.kill(); // in one step, which no fork outruns
            }
            self.stop_all(&mut members, &mut proven);
            seen.extend(&members);
            signal(&members, Signal::KILL);
            if let Some(subreaper) = self.living_subreaper() {
                subreaper::go_on(subreaper);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
            members = self.members(&mut proven);
            seen.extend(&members);
        }
        if let Some(subreaper) = self.living_subreaper() {
            subreaper::kill(subreaper); // the last; those below it could not be ended
        }
        if !members.is_empty() {
            tracing::error!(?members, "processes of a killed call are still alive");
        }
        let killed = seen.iter().filter(|pid| !members.contains(pid)).count();
        Ended { killed: killed as u64, survivors: members }
    }

    /// Whether anybody is left: `members` says so, or a subreaper that waits for them.
    fn anybody(&self, members: &[u32]) -> bool {
        !members.is_empty() || self.living_subreaper().is_some()
    }

    /// Stops everybody first: of two that are killed one after the other, the second could still fork.
    fn stop_all(&self, members: &mut Vec<u32>, proven: &mut Proven) {
        /// Rounds until nobody new turns up; a fork bomb without a cgroup may need the next ones of `end`.
        const ROUNDS: usize = 16;
        let mut stopped: Vec<u32> = Vec::new();
        for _ in 0..ROUNDS {
            let new: Vec<u32> = members.iter().copied().filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            signal(&new, Signal::STOP);
            stopped.extend(new);
            *members = self.members(proven);
        }
    }

    /// Gives up what holds it; processes that live on are not disturbed. `false` while it has to be asked again.
    pub(crate) fn release(&self) -> bool {
        if let Holder::Cgroup(cgroup) = &self.holder { cgroup.remove() } else { true }
    }
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids {
        send(*pid, signal); // gone already is as good
    }
}

fn send(pid: u32, signal: Signal) -> bool {
    Pid::from_raw(pid.cast_signed()).is_some_and(|pid| kill_process(pid, signal).is_ok())
}
