//! All processes of one call, however they try to get away, and their end.
//!
//! Implementation note: membership has to be *proven* before anything is killed, or a call could take another
//! call's survivor with it. Where cgroups can be written the kernel proves it. Elsewhere it is a subreaper of the call's
//! own, to which all orphans of the call fall, so that everybody is its provable descendant; and should somebody kill
//! that, a mark in the environment, the leader's session, or descent from a process with one of the two.

use std::{
    collections::BTreeSet,
    ffi::CString,
    io,
    path::Path,
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
    /// What a call without a cgroup gets a subreaper with; `None` where the system has none.
    subreapers: Option<subreaper::Home>,
}

impl TreeHome {
    /// Finds out what this system offers; `use_cgroups: false` leaves cgroups alone. `program` is the executable whose
    /// `agent hold` takes over a subreaper's part in a long call; `None` leaves it to a copy of this process.
    pub(crate) fn detect(agent_id: &str, use_cgroups: bool, program: Option<&Path>) -> Self {
        let cgroups = if use_cgroups { CgroupHome::detect(agent_id) } else { None };
        let subreapers = subreaper::Home::detect(program);
        tracing::debug!(?cgroups, ?subreapers, "how calls' processes are told apart");
        Self { cgroups, subreapers }
    }

    /// What holds the processes of a call: `cgroup`, `subreaper` or `environment`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self { cgroups: Some(_), .. } => "cgroup",
            Self { subreapers: Some(_), .. } => "subreaper",
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
        let holder = match (cgroup, &self.subreapers) {
            (Some(cgroup), _) => Holder::Cgroup(cgroup),
            (None, Some(home)) => Holder::NewSubreaper(home.clone()),
            (None, None) => Holder::Nothing,
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
    NewSubreaper(subreaper::Home),
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
            Holder::NewSubreaper(home) => {
                let (subreaper, report) = Subreaper::new()?;
                let mark = CString::new(self.mark.as_str()).map_err(io::Error::other)?;
                below = Some(Plan { report, mark, home: home.clone() });
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
        let listed = if let Holder::Cgroup(cgroup) = &self.holder { cgroup.members() } else { Vec::new() };
        let proofs = Proofs { mark: &self.mark, leader: self.leader, subreaper: self.subreaper(), listed: &listed };
        process_table::members(proofs, proven)
    }

    const fn subreaper(&self) -> Option<Identity> {
        if let Holder::Subreaper(subreaper) = &self.holder { Some(*subreaper) } else { None }
    }

    /// The subreaper where it lives. Asked to stay it does so until nobody is left, whatever `members` has found.
    fn living_subreaper(&self) -> Option<u32> {
        self.subreaper().filter(|subreaper| subreaper.lives()).map(|subreaper| subreaper.pid)
    }

    /// Ends everybody in it: TERM, KILL once `by` has come, until nobody is left. What `by` says may change meanwhile.
    /// The child must not have been waited for.
    pub(crate) async fn end(&self, by: impl Fn() -> Instant + Send) -> Ended {
        let begun = Instant::now();
        if let Some(subreaper) = self.living_subreaper() {
            // or it would let go of everybody when the leader is among the first to die
            subreaper::stay(subreaper);
        }
        let mut proven = Proven::default();
        let mut members = self.members(&mut proven);
        let mut seen: BTreeSet<u32> = members.iter().copied().collect();
        if Instant::now() < by() {
            signal(&members, Signal::TERM);
            // a stopped process takes the TERM only when it goes on
            signal(&members, Signal::CONT);
        }
        let mut pause = Duration::from_millis(1);
        while self.anybody(&members) && Instant::now() < by() {
            tokio::time::sleep(pause.min(by().saturating_duration_since(Instant::now()))).await;
            // each look reads all of the process table: who is given long to end is looked at less and less often
            let longest = (begun.elapsed() / 20).clamp(Duration::from_millis(20), Duration::from_millis(200));
            pause = (pause * 2).min(longest);
            members = self.members(&mut proven);
            seen.extend(&members);
        }
        let deadline = Instant::now() + KILL_DEADLINE;
        pause = Duration::from_millis(1);
        // who forks and exits all the time can be missed by every look; only the kernel's step is sure to meet it
        let mut unsure = matches!(self.holder, Holder::Cgroup(_));
        while (unsure || self.anybody(&members)) && Instant::now() < deadline {
            unsure = false;
            if let Holder::Cgroup(cgroup) = &self.holder {
                cgroup.freeze(); // or some would die uncounted
                members = self.members(&mut proven);
            }
            self.stop_all(&mut members, &mut proven);
            seen.extend(&members);
            if let Holder::Cgroup(cgroup) = &self.holder {
                cgroup.kill(); // in one step, which no fork outruns
            }
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

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use tokio::process::Child;

    use super::*;
    use crate::guest::sys::unix::spawn::leader_signal;

    fn homes() -> [TreeHome; 2] {
        [true, false].map(|use_cgroups| TreeHome::detect(&format!("unit{use_cgroups}"), use_cgroups, None))
    }

    /// A script that runs in a tree of its own, and has written its first line.
    async fn begin(home: &TreeHome, name: &str, script: &str) -> (CallTree, Child) {
        use tokio::io::AsyncReadExt as _;
        let mut tree = home.plant(&format!("p-unit-{name}-{}", std::process::id()));
        #[expect(clippy::disallowed_methods, reason = "a program to be held")]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(std::process::Stdio::piped()).kill_on_drop(true);
        tree.hold(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        tree.led_by(child.id().unwrap());
        let mut byte = [0];
        let read = child.stdout.as_mut().unwrap().read_exact(&mut byte);
        tokio::time::timeout(Duration::from_secs(10), read).await.unwrap().unwrap();
        (tree, child)
    }

    async fn end_of(child: &mut Child) -> ExitStatus {
        tokio::time::timeout(Duration::from_secs(10), child.wait()).await.unwrap().unwrap()
    }

    fn number(name: &str) -> SignalNumber {
        name.parse().unwrap()
    }

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_signal_to_the_leader_reaches_the_program_alone() {
        for home in homes() {
            let script = "trap 'exit 7' USR1; sleep 60 & echo; while :; do wait; done";
            let (tree, mut child) = begin(&home, "leader", script).await;
            assert_eq!(tree.members(&mut Proven::default()).len(), 2, "{}", home.kind());
            assert!(tree.leader.unwrap().lives() && tree.leader() == Some(tree.leader.unwrap().pid));
            tree.signal_leader(number("USR1")).unwrap();
            assert_eq!(end_of(&mut child).await.code(), Some(7), "{}", home.kind());
            let gone = tree.signal_leader(number("KILL")).unwrap_err();
            assert_eq!(gone.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
            // the sleeper did not get it, and is still known by its mark
            assert_eq!(tree.signal_all(number("KILL")), 1, "{}", home.kind());
            until("the end of the sleeper", || tree.members(&mut Proven::default()).is_empty()).await;
            until("the tree to be given up", || tree.release()).await;
        }
    }

    #[tokio::test]
    async fn a_signal_to_all_reaches_each_and_no_more() {
        for home in homes() {
            let script = "(env -i /usr/bin/setsid /bin/sleep 60 &); setsid sleep 60 & sleep 60 & sleep 0.3; echo; wait";
            let (tree, mut child) = begin(&home, "all", script).await;
            assert_eq!(tree.signal_all(number("SIGSTOP")), 4, "{}", home.kind());
            assert_eq!(tree.signal_all(number("RTMIN+1")), 4, "{}", home.kind());
            assert_eq!(tree.signal_all(number("18")), 4, "{}: to go on", home.kind());
            assert_eq!(leader_signal(end_of(&mut child).await), Some(35), "{}", home.kind());
            until("the end of all", || tree.members(&mut Proven::default()).is_empty()).await;
            assert_eq!(tree.signal_all(number("TERM")), 0, "{}", home.kind());
            until("the tree to be given up", || tree.release()).await;
        }
    }

    #[tokio::test]
    async fn ending_counts_the_calls_own_and_gives_the_leaders_status() {
        for home in homes() {
            let script = "trap 'exit 9' TERM; (trap '' TERM; exec env -i /usr/bin/setsid /bin/sleep 60 &)
                sleep 60 & sleep 0.3; echo; while :; do wait; done";
            let (tree, mut child) = begin(&home, "ending", script).await;
            let by = Instant::now() + Duration::from_secs(2);
            let ended = tree.end(|| by).await;
            assert_eq!(ended, Ended { killed: 3, survivors: Vec::new() }, "{}", home.kind());
            assert_eq!(end_of(&mut child).await.code(), Some(9), "{}", home.kind());
            assert!(tree.release(), "{}", home.kind());
        }
    }

    #[tokio::test]
    async fn without_its_subreaper_a_tree_is_ended_by_the_older_proofs() {
        let home = TreeHome::detect("unit", false, None);
        assert_eq!(home.kind(), "subreaper");
        let script = "setsid sleep 60 & env -i /bin/sleep 60 & sleep 0.3; echo; wait";
        let (tree, mut child) = begin(&home, "older", script).await;
        let subreaper = tree.living_subreaper().unwrap();
        assert_eq!(Some(subreaper), child.id());
        subreaper::kill(subreaper);
        until("the leader's end with it", || !tree.leader.unwrap().lives()).await;
        let at_once = Instant::now();
        let ended = tree.end(|| at_once).await;
        assert_eq!(ended, Ended { killed: 2, survivors: Vec::new() });
        assert_eq!(leader_signal(end_of(&mut child).await), Some(9));
    }

    #[tokio::test]
    async fn what_cannot_be_started_leaves_nobody() {
        for home in homes() {
            let mut tree = home.plant(&format!("p-unit-none-{}", std::process::id()));
            #[expect(clippy::disallowed_methods, reason = "a program that is not there")]
            let mut command = Command::new("/no/such/program");
            tree.hold(&mut command).unwrap();
            let error = command.spawn().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{}", home.kind());
            assert_eq!(tree.members(&mut Proven::default()), [0_u32; 0]);
            assert!(tree.release());
        }
    }
}
