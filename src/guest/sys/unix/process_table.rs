//! The system's processes as `/proc` shows them, for finding those of one call without cgroups.

use std::collections::{HashMap, HashSet};

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

/// What has been proven to belong to a call so far.
#[derive(Debug, Default)]
pub(super) struct Proven {
    /// Processes: their numbers, and when they started.
    processes: HashMap<u32, u64>,
    /// Sessions that one of them has made. The number stays taken while anybody is in it.
    sessions: HashSet<u32>,
}

/// Everybody alive who is proven to belong to the call with this mark and this leader; `proven` keeps them.
///
/// Proof is the mark in the environment that the process was started with, a session that the leader or somebody
/// proven has made, or a parent that is itself proven; and what was proven once stays so, whoever dies. Zombies do not
/// count, and neither does this process: whatever it bears, it is not its own call.
pub(super) fn members(mark: &str, leader: Option<u32>, proven: &mut Proven) -> Vec<u32> {
    let table = snapshot();
    let us = std::process::id();
    let others = || table.iter().filter(|entry| entry.pid != us && entry.pid > 1 && !entry.dead);
    let Proven { processes, sessions } = proven;
    processes.retain(|pid, started| others().any(|entry| entry.pid == *pid && entry.started == *started));
    sessions.retain(|session| others().any(|entry| entry.session == *session));
    // 0 is no process: it stands for kernel threads, and for leaders that this namespace does not show
    if let Some(leader) = leader.filter(|leader| *leader > 1) {
        sessions.insert(leader);
    }
    processes.extend(others().filter(|entry| bears(entry.pid, mark)).map(|entry| (entry.pid, entry.started)));
    // who is in a proven session, children of the proven, and theirs: until a round finds nobody new
    loop {
        let more: Vec<&Entry> = others()
            .filter(|entry| sessions.contains(&entry.session) || processes.contains_key(&entry.parent))
            .filter(|entry| !processes.contains_key(&entry.pid))
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

/// Children of `parent` whose exit status nobody has taken yet.
pub(super) fn dead_children_of(parent: u32) -> Vec<u32> {
    snapshot().into_iter().filter(|entry| entry.dead && entry.parent == parent).map(|entry| entry.pid).collect()
}

/// Whether a process is gone, or only waits for its exit status to be taken.
pub(super) fn is_dead(pid: u32) -> bool {
    look(pid).is_none_or(|entry| entry.dead)
}

/// When a process started, in clock ticks since boot; `None` where there is none, or the system does not tell.
pub(in crate::guest) fn start_time(pid: u32) -> Option<u64> {
    look(pid).map(|entry| entry.started)
}

/// Whether the process was started with this line in its environment.
fn bears(pid: u32, mark: &str) -> bool {
    // unreadable means another user's or gone: not proven
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|line| line == mark.as_bytes()))
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

    #[test]
    fn nothing_proves_nothing() {
        for leader in [None, Some(0), Some(1)] {
            assert_eq!(members("PODLINK_CALL=p-nobody", leader, &mut Proven::default()), [0_u32; 0], "{leader:?}");
        }
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
            let found = members("PODLINK_TEST_MARK=only-here", None, &mut proven);
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
        assert_eq!(members("PODLINK_TEST_MARK=only-here", None, &mut proven), orphan);
        kill(orphan[0]);
    }
}
