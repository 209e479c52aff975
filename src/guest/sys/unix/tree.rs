//! All processes of one call, however they try to get away, and their end.
//!
//! Implementation note: membership has to be *proven* before anything is killed, or a call could take another
//! call's survivor with it. Where cgroups can be written the kernel proves it. Elsewhere the proof is a mark in the
//! environment, the leader's session, or descent from a process with one of the two.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::{
    cgroup::{Cgroup, CgroupHome},
    process_table::{self, Proven},
    signal_names::SignalNumber,
    spawn,
};

/// The variable that marks a call's processes; its value is the call's process id.
const MARK: &str = "PODLINK_CALL";

/// How long killing goes on before those left are named as survivors. Only a process in an uninterruptible system
/// call takes that long.
const KILL_DEADLINE: Duration = Duration::from_secs(3);

/// Where calls' trees are made.
#[derive(Debug)]
pub(crate) struct TreeHome {
    cgroups: Option<CgroupHome>,
}

impl TreeHome {
    /// Finds out what this system offers; `use_cgroups: false` leaves cgroups alone.
    pub(crate) fn detect(agent_id: &str, use_cgroups: bool) -> Self {
        let cgroups = if use_cgroups { CgroupHome::detect(agent_id) } else { None };
        tracing::debug!(cgroups = ?cgroups, "how calls' processes are told apart");
        Self { cgroups }
    }

    /// What holds the processes of a call: `cgroup` or `environment`.
    pub(crate) fn kind(&self) -> &'static str {
        if self.cgroups.is_some() { "cgroup" } else { "environment" }
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
        CallTree { mark: format!("{MARK}={process_id}"), cgroup, leader: None }
    }

    /// The tree of a call that an agent which crashed had not ended.
    pub(crate) fn find(&self, process_id: &str) -> CallTree {
        let cgroup = self.cgroups.as_ref().and_then(|home| home.find(process_id));
        CallTree { mark: format!("{MARK}={process_id}"), cgroup, leader: None }
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
    cgroup: Option<Cgroup>,
    leader: Option<u32>,
}

impl CallTree {
    /// Makes the command start inside the tree.
    pub(crate) fn hold(&self, command: &mut Command) -> std::io::Result<()> {
        let (key, value) = self.mark.split_once('=').unwrap_or((&self.mark, ""));
        command.env(key, value);
        let join = self.cgroup.as_ref().map(Cgroup::join_file).transpose()?;
        spawn::in_session_of_its_own(command, join);
        Ok(())
    }

    /// Says who leads it, once it has been started.
    pub(crate) const fn led_by(&mut self, pid: u32) {
        self.leader = Some(pid);
    }

    /// Who is alive of it. A process that root has moved out of the cgroup still bears the mark, so both are asked.
    fn members(&self, proven: &mut Proven) -> Vec<u32> {
        let mut members = process_table::members(&self.mark, self.leader, proven);
        if let Some(cgroup) = &self.cgroup {
            // a zombie stays listed until it is reaped, and is dead all the same
            members.extend(cgroup.members().into_iter().filter(|pid| !process_table::is_dead(*pid)));
            members.sort_unstable();
            members.dedup();
        }
        members
    }

    /// Ends everybody in it: TERM, `grace`, KILL, until nobody is left.
    pub(crate) async fn end(&self, grace: Duration) -> Ended {
        let begun = Instant::now();
        let mut proven = Proven::default();
        let mut members = self.members(&mut proven);
        let mut seen: BTreeSet<u32> = members.iter().copied().collect();
        if !grace.is_zero() {
            signal(&members, Signal::TERM);
            // a stopped process takes the TERM only when it goes on
            signal(&members, Signal::CONT);
        }
        let mut pause = Duration::from_millis(1);
        while !members.is_empty() && begun.elapsed() < grace {
            tokio::time::sleep(pause.min(grace)).await;
            pause = (pause * 2).min(Duration::from_millis(20));
            members = self.members(&mut proven);
            seen.extend(&members);
        }
        let deadline = Instant::now() + KILL_DEADLINE;
        pause = Duration::from_millis(1);
        while !members.is_empty() && Instant::now() < deadline {
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill(); // in one step, which no fork outruns
            }
            self.stop_all(&mut members, &mut proven);
            seen.extend(&members);
            signal(&members, Signal::KILL);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
            members = self.members(&mut proven);
            seen.extend(&members);
        }
        if !members.is_empty() {
            tracing::error!(?members, "processes of a killed call are still alive");
        }
        let killed = seen.iter().filter(|pid| !members.contains(pid)).count();
        Ended { killed: killed as u64, survivors: members }
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

    /// Sends one signal to the leader.
    pub(crate) fn signal_leader(&self, signal: SignalNumber) -> std::io::Result<()> {
        let pid = self.leader.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(rustix::io::Errno::SRCH)?;
        let signal = Signal::from_named_raw(signal.number()).ok_or(rustix::io::Errno::INVAL)?;
        Ok(kill_process(pid, signal)?)
    }

    /// Sends one signal to everybody in it.
    pub(crate) fn signal_all(&self, signal: SignalNumber) -> u64 {
        let Some(sent) = Signal::from_named_raw(signal.number()) else { return 0 };
        let members = self.members(&mut Proven::default());
        signal_each(&members, sent)
    }

    /// Gives up what holds it; processes that live on are not disturbed. `false` while it has to be asked again.
    pub(crate) fn release(&self) -> bool {
        self.cgroup.as_ref().is_none_or(Cgroup::remove)
    }
}

fn signal_each(pids: &[u32], signal: Signal) -> u64 {
    let send = |pid: &&u32| Pid::from_raw(pid.cast_signed()).is_some_and(|pid| kill_process(pid, signal).is_ok());
    pids.iter().filter(send).count() as u64
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // gone already is as good
        }
    }
}
