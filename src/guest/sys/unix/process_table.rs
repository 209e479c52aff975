//! The system's processes as `/proc` shows them, for finding those of one call without cgroups.

use std::collections::HashSet;

/// What is known of one process.
#[derive(Debug)]
struct Entry {
    pid: u32,
    parent: u32,
    session: u32,
}

/// Everybody who is proven to belong to the call with this mark and this leader.
///
/// Proof is the mark in the environment that the process was started with, the session that the leader made (its
/// number stays taken while anybody is in it), or a parent that is itself proven. Zombies do not count.
pub(super) fn members(mark: &str, leader: u32) -> Vec<u32> {
    let table = snapshot();
    let mut proven: HashSet<u32> = table
        .iter()
        .filter(|entry| entry.session == leader || entry.pid == leader || bears(entry.pid, mark))
        .map(|entry| entry.pid)
        .collect();
    // children of the proven, and theirs: until a round finds nobody new
    loop {
        let before = proven.len();
        proven.extend(
            table.iter().filter(|entry| proven.contains(&entry.parent)).map(|entry| entry.pid).collect::<Vec<_>>(),
        );
        if proven.len() == before {
            break;
        }
    }
    proven.into_iter().collect()
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
    (!matches!(state, "Z" | "X")).then_some(Entry { pid, parent, session })
}
