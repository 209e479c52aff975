//! The processes of the whole system.

use std::io;

use jiff::Timestamp;

use super::{
    machine::{cpus, memory},
    nt, process_list,
    process_look::{self, Memory},
    process_table,
    time_text::{now, to_milliseconds},
    tree,
};
use crate::protocol::{SystemProcess, SystemProcesses};

/// Bytes of one process' command line: as much as Windows takes at all.
const MOST_OF_ARGUMENTS: usize = 32 * 1024;

/// Bytes of all command lines together, so that no guest makes an answer that fills memory.
const MOST_OF_ALL_ARGUMENTS: usize = 8 * 1024 * 1024;

/// Bytes of an environment, a call's mark in which may stand anywhere.
const MOST_OF_ENVIRONMENT: usize = 6 * 1024 * 1024;

/// All of them at this moment. It blocks.
///
/// # Errors
/// When the system does not tell.
pub(in crate::guest) fn system_processes() -> io::Result<SystemProcesses> {
    let foreign_mark = std::env::var(tree::MARK).ok();
    let mut left = MOST_OF_ALL_ARGUMENTS;
    let processes = process_list::snapshot()?.into_iter().map(|entry| {
        // gone in the meantime, or a process of the system's that nobody may ask anything; or another's by now
        let process = process_table::open(entry.pid).ok().filter(|process| {
            entry.started == 0 || process_table::times(process).is_ok_and(|times| times.started == entry.started)
        });
        let memory = process.as_ref().and_then(|_| Memory::open(entry.pid).ok());
        let line = process.as_ref().and_then(|process| process_look::command_line(process, memory.as_ref()));
        let argv = bounded(process_look::arguments(&line.unwrap_or_default()), &mut left);
        let environment = memory.and_then(|memory| memory.environment(MOST_OF_ENVIRONMENT).ok());
        let call = environment.and_then(|text| process_look::variable(&text, tree::MARK));
        SystemProcess {
            pid: entry.pid,
            ppid: entry.parent,
            name: entry.name,
            argv,
            user: process.as_ref().and_then(process_look::user),
            state: None,
            started_at: (entry.started > 0).then(|| time_of(entry.started)).flatten(),
            cpu_ms: entry.cpu / 10_000,
            memory_bytes: entry.memory_bytes,
            threads: entry.threads,
            process_id: call.filter(|call| Some(call) != foreign_mark.as_ref()),
            signals_caught: None,
            signals_blocked: None,
            signals_ignored: None,
        }
    });
    let processes = processes.collect();
    Ok(SystemProcesses { taken_at: now(), cpus: cpus(), memory_bytes: memory()?.total, processes })
}

/// As many of the arguments as there is room for, the last one cut.
fn bounded(arguments: Vec<String>, left: &mut usize) -> Vec<String> {
    let mut most = MOST_OF_ARGUMENTS.min(*left);
    let mut kept = Vec::new();
    for mut argument in arguments {
        if most == 0 {
            break;
        }
        argument.truncate(argument.floor_char_boundary(most));
        let taken = (argument.len() + 1).min(most);
        most -= taken;
        *left -= taken;
        kept.push(argument);
    }
    kept
}

fn time_of(ticks: u64) -> Option<String> {
    Some(to_milliseconds(Timestamp::from_nanosecond(nt::unix_ns(ticks)?.into()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_as_it_is() {
        let snapshot = system_processes().unwrap();
        assert!(snapshot.processes.is_sorted_by_key(|process| process.pid));
        let own = snapshot.processes.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert_eq!(own.argv, std::env::args().collect::<Vec<_>>());
        assert!(own.threads >= 1 && own.memory_bytes > 100_000, "{own:?}");
        assert_eq!(own.user.as_deref().map(str::to_lowercase), Some(super::super::account().user.to_lowercase()));
        let now: Timestamp = snapshot.taken_at.parse().unwrap();
        let started: Timestamp = own.started_at.as_ref().unwrap().parse().unwrap();
        let age = now.as_millisecond() - started.as_millisecond();
        assert!((-1000..3_600_000).contains(&age), "{age}");
        assert!(snapshot.cpus >= 1 && snapshot.memory_bytes > own.memory_bytes);
    }

    #[test]
    fn command_lines_have_a_bound_in_all() {
        let mut left = 5;
        assert_eq!(bounded(vec!["ab".to_owned(), "éé".to_owned(), "x".to_owned()], &mut left), ["ab", "é"]);
        assert_eq!((left, bounded(vec!["a".to_owned()], &mut left)), (0, Vec::new()));
    }
}
