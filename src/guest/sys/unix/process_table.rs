//! The system's processes as `/proc` shows them, for finding those of one call without cgroups.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
};

/// What is known of one process.
#[derive(Debug)]
struct Entry {
    pid: u32,
    parent: u32,
    session: u32,
    dead: bool,
    /// Since boot, in clock ticks: with the number it names one process for ever.
    started: u64,
}

/// One process, which no other one with the same number is mistaken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its number.
    pub pid: u32,
    /// Since boot, in clock ticks.
    started: u64,
}

impl Identity {
    /// Who has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        look(pid).map(|entry| Self { pid, started: entry.started })
    }

    /// Whether it is alive: neither gone nor waiting for its exit status to be taken.
    pub(super) fn lives(self) -> bool {
        look(self.pid).is_some_and(|entry| !entry.dead && entry.started == self.started)
    }
}

/// What proves that a process belongs to a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proofs<'a> {
    /// A line of the environment that its processes were started with.
    pub mark: &'a str,
    /// The program, which leads a session of its own.
    pub leader: Option<Identity>,
    /// What inherits the call's orphans; it is itself no member.
    pub subreaper: Option<Identity>,
    /// Those that the call's cgroup lists, the dead among them too.
    pub listed: &'a [u32],
}

/// What has been proven to belong to a call so far.
#[derive(Debug, Default)]
pub(super) struct Proven {
    /// Processes: their numbers, and when they started.
    processes: HashMap<u32, u64>,
    /// Sessions that one of them has made. The number stays taken while anybody is in it.
    sessions: HashSet<u32>,
    /// Processes that do not bear the mark, by number and start: a fork bears what its parent bears, and so none of them
    /// comes to bear it. Reading an environment is most of what a look costs, and whoever ends a call looks often.
    unmarked: HashMap<u32, u64>,
}

/// Everybody alive who is proven to belong to the call; `proven` keeps them.
///
/// Proof is the cgroup's list, the mark, a session that the leader or somebody proven has made, or a parent that is itself proven or the
/// call's subreaper; and what was proven once stays so, whoever dies. Zombies do not count, and neither does this
/// process: whatever it bears, it is not its own call.
pub(super) fn members(proofs: Proofs<'_>, proven: &mut Proven) -> Vec<u32> {
    let table: HashMap<u32, Entry> = snapshot().into_iter().map(|entry| (entry.pid, entry)).collect();
    let us = std::process::id();
    let is = |who: Identity| table.get(&who.pid).is_some_and(|entry| entry.started == who.started);
    let subreaper = proofs.subreaper.filter(|subreaper| is(*subreaper)).map(|subreaper| subreaper.pid);
    let others = || {
        table.values().filter(|entry| entry.pid != us && entry.pid > 1 && !entry.dead && Some(entry.pid) != subreaper)
    };
    let Proven { processes, sessions, unmarked } = proven;
    processes.retain(|pid, started| table.get(pid).is_some_and(|entry| !entry.dead && entry.started == *started));
    let occupied: HashSet<u32> = others().map(|entry| entry.session).collect();
    sessions.retain(|session| occupied.contains(session));
    // a number that another process has by now names no session of the leader's any more
    if let Some(leader) = proofs.leader.filter(|leader| is(*leader) || !table.contains_key(&leader.pid)) {
        sessions.insert(leader.pid);
    }
    let listed = proofs.listed.iter().filter_map(|pid| table.get(pid)).filter(|entry| !entry.dead);
    processes.extend(listed.map(|entry| (entry.pid, entry.started)));
    let unknown =
        |entry: &&Entry| !processes.contains_key(&entry.pid) && unmarked.get(&entry.pid) != Some(&entry.started);
    let read: Vec<(&Entry, Option<bool>)> =
        others().filter(unknown).map(|entry| (entry, bears(entry.pid, proofs.mark))).collect();
    for (entry, bears) in read {
        match bears {
            Some(true) => drop(processes.insert(entry.pid, entry.started)),
            Some(false) => drop(unmarked.insert(entry.pid, entry.started)),
            None => {}
        }
    }
    // who is in a proven session, children of the proven, and theirs: until a round finds nobody new
    loop {
        let more: Vec<&Entry> = others()
            .filter(|entry| !processes.contains_key(&entry.pid))
            .filter(|entry| {
                sessions.contains(&entry.session)
                    || processes.contains_key(&entry.parent)
                    || Some(entry.parent) == subreaper
            })
            .collect();
        processes.extend(more.iter().map(|entry| (entry.pid, entry.started)));
        sessions.extend(
            others()
                .filter(|entry| entry.session == entry.pid && processes.contains_key(&entry.pid))
                .map(|entry| entry.pid),
        );
        if more.is_empty() {
            break;
        }
    }
    processes.keys().copied().collect()
}

/// The subreaper that an agent which crashed has left to the call with this mark.
pub(super) fn subreaper_of(mark: &str, name: &CStr) -> Option<Identity> {
    let named = |entry: &Entry| {
        // unreadable is another user's or gone
        std::fs::read(format!("/proc/{}/comm", entry.pid)).is_ok_and(|comm| comm.trim_ascii_end() == name.to_bytes())
    };
    snapshot()
        .into_iter()
        .find(|entry| !entry.dead && named(entry) && bears(entry.pid, mark) == Some(true))
        .map(|entry| Identity { pid: entry.pid, started: entry.started })
}

/// Children of `parent` whose exit status nobody has taken yet.
pub(super) fn dead_children_of(parent: u32) -> Vec<u32> {
    snapshot().into_iter().filter(|entry| entry.dead && entry.parent == parent).map(|entry| entry.pid).collect()
}

/// When a process started, in clock ticks since boot; `None` where there is none, or the system does not tell.
pub(in crate::guest) fn start_time(pid: u32) -> Option<u64> {
    look(pid).map(|entry| entry.started)
}

/// Whether the process that started then is alive; one that has ended and not been waited for is not.
pub(in crate::guest) fn process_lives(pid: u32, started: u64) -> bool {
    Identity { pid, started }.lives()
}

/// Whether the process was started with this line in its environment. `None` where that is not known: it is another
/// user's or gone, has no environment, or is becoming another program at this moment.
fn bears(pid: u32, mark: &str) -> Option<bool> {
    let environment =
        std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|environment| !environment.is_empty())?;
    Some(environment.split(|byte| *byte == 0).any(|line| line == mark.as_bytes()))
}

fn snapshot() -> Vec<Entry> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(look).collect()
}

fn look(pid: u32) -> Option<Entry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state ppid pgrp session …`: the name may hold anything, so count from its last bracket
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let mut fields = text.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    // field 22 of all, and the session was the 6th
    let started = fields.nth(15)?.parse().ok()?;
    Some(Entry { pid, parent, session, dead: matches!(state, "Z" | "X"), started })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn by_mark(mark: &str) -> Proofs<'_> {
        Proofs { mark, leader: None, subreaper: None, listed: &[] }
    }

    #[test]
    fn nothing_proves_nothing() {
        assert_eq!(members(by_mark("PODLINK_CALL=p-nobody"), &mut Proven::default()), [0_u32; 0]);
        // the kernel's threads are in session 0, and below nobody
        assert_eq!(Identity::of(0), None);
    }

    #[test]
    fn a_number_that_another_process_has_got_proves_nothing() {
        let us = std::process::id();
        let gone = Identity { pid: us, started: 0 };
        let proofs = Proofs { mark: "PODLINK_CALL=p-nobody", leader: Some(gone), subreaper: Some(gone), listed: &[] };
        assert_eq!(members(proofs, &mut Proven::default()), [0_u32; 0]);
        assert!(!gone.lives() && Identity::of(us).unwrap().lives());
    }

    #[test]
    fn a_mark_proves_and_so_does_descent() {
        #[expect(clippy::disallowed_methods, reason = "a process to be found")]
        let mut marked = std::process::Command::new("sh")
            .args(["-c", "env -i sleep 60 & wait"])
            .env("PODLINK_TEST_MARK", "only-here")
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut proven = Proven::default();
        let found = loop {
            let found = members(by_mark("PODLINK_TEST_MARK=only-here"), &mut proven);
            if found.len() == 2 || std::time::Instant::now() > deadline {
                break found;
            }
        };
        assert!(found.len() == 2 && found.contains(&marked.id()), "{found:?}");
        let kill = |pid: u32| {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        };
        // its parent's death does not take the proof away
        kill(marked.id());
        marked.wait().unwrap();
        let orphan: Vec<u32> = found.into_iter().filter(|pid| *pid != marked.id()).collect();
        assert_eq!(members(by_mark("PODLINK_TEST_MARK=only-here"), &mut proven), orphan);
        kill(orphan[0]);
    }
}
