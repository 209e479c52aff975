//! All processes of the guest at one moment, out of `/proc`.

use std::{collections::HashMap, io};

use jiff::Timestamp;

use super::{
    cgroup,
    proc_folder::{ProcFolder, pids},
    proc_text::{self, Stat, Status, signals_in},
    signal_names::signal_name,
    tree,
};
use crate::protocol::{SystemProcess, SystemProcesses};

/// Bytes of one process' command line: four times what Linux showed at all until 4.2, and enough for a Java class path.
const MOST_OF_ARGUMENTS: usize = 32 * 1024;

/// Bytes of all command lines together, so that no guest makes an answer that fills memory.
const MOST_OF_ALL_ARGUMENTS: usize = 8 * 1024 * 1024;

/// Bytes of an environment: more than the kernel hands to any program (6 MiB, with its arguments).
const MOST_OF_ENVIRONMENT: usize = 6 * 1024 * 1024;

/// Bytes of the other files, each of a few KiB.
const MOST_OF_TEXT: usize = 64 * 1024;

/// Looks at all of them. It blocks, and a process whose memory is held up by a dead disk may hold it up too.
///
/// # Errors
/// When the system has no `/proc` to be read.
pub(in crate::guest) fn system_processes() -> io::Result<SystemProcesses> {
    let mut machine = Machine::look()?;
    let mut processes = Vec::new();
    for pid in pids()? {
        // gone in the meantime, or hidden from this account
        processes.extend(machine.process(pid));
    }
    Ok(SystemProcesses { taken_at: now(), cpus: machine.cpus, memory_bytes: machine.memory_bytes, processes })
}

/// RFC 3339 to the millisecond.
pub(super) fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now).to_string()
}

/// The names of accounts, by number.
pub(super) fn account_names() -> HashMap<u32, String> {
    proc_text::account_names(&fs_err::read("/etc/passwd").unwrap_or_default())
}

/// What counts for all processes of a snapshot.
struct Machine {
    boot: Option<i64>,
    ticks_per_second: u64,
    cpus: u32,
    memory_bytes: u64,
    accounts: HashMap<u32, String>,
    /// How the cgroups of this agent's calls begin.
    group_prefix: String,
    /// The mark that this agent bears itself: of a call of another agent, and so has everything it starts.
    foreign_mark: Option<String>,
    arguments_left: usize,
    buffer: Vec<u8>,
}

impl Machine {
    fn look() -> io::Result<Self> {
        let (boot, cpus) = proc_text::boot_and_cpus(&fs_err::read("/proc/stat")?);
        Ok(Self {
            boot,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            cpus,
            memory_bytes: proc_text::memory_total(&fs_err::read("/proc/meminfo")?).unwrap_or(0),
            accounts: account_names(),
            group_prefix: format!("{}{}-", cgroup::PREFIX, std::process::id()),
            foreign_mark: std::env::var(tree::MARK).ok(),
            arguments_left: MOST_OF_ALL_ARGUMENTS,
            buffer: Vec::new(),
        })
    }

    /// One of them; `None` where it is gone.
    fn process(&mut self, pid: u32) -> Option<SystemProcess> {
        let folder = ProcFolder::open(pid).ok()?;
        let argv = self.arguments(&folder);
        let process_id = self.call_of(&folder);
        let status = match folder.read("status", MOST_OF_TEXT, &mut self.buffer) {
            Ok(text) => Status::parse(text),
            Err(_) => Status::default(),
        };
        // the last: that it can be read says that all before was read of a process that was there
        let stat = Stat::parse(folder.read("stat", MOST_OF_TEXT, &mut self.buffer).ok()?)?;
        let user = status.uid.map(|uid| self.accounts.get(&uid).cloned().unwrap_or_else(|| uid.to_string()));
        Some(SystemProcess {
            pid,
            ppid: stat.parent,
            name: stat.name,
            argv,
            user,
            state: Some(stat.state.to_string()),
            started_at: self.time_of(stat.started_ticks),
            cpu_ms: self.milliseconds(stat.cpu_ticks),
            memory_bytes: status.memory_bytes.unwrap_or(0),
            threads: stat.threads,
            process_id,
            signals_caught: status.caught.map(names),
            signals_blocked: status.blocked.map(names),
            signals_ignored: status.ignored.map(names),
        })
    }

    fn arguments(&mut self, folder: &ProcFolder) -> Vec<String> {
        let most = self.arguments_left.min(MOST_OF_ARGUMENTS);
        let Ok(text) = folder.read("cmdline", most, &mut self.buffer) else { return Vec::new() };
        self.arguments_left -= text.len().min(self.arguments_left);
        proc_text::arguments(text)
    }

    /// The call that it belongs to: by its cgroup, or where it has none of ours by the mark in its environment.
    fn call_of(&mut self, folder: &ProcFolder) -> Option<String> {
        if let Ok(text) = folder.read("cgroup", MOST_OF_TEXT, &mut self.buffer)
            && let Some(call) = proc_text::group_after(text, &self.group_prefix)
        {
            return Some(call);
        }
        // another user's cannot be read
        let text = folder.read("environ", MOST_OF_ENVIRONMENT, &mut self.buffer).ok()?;
        proc_text::variable(text, tree::MARK).filter(|call| Some(call) != self.foreign_mark.as_ref())
    }

    fn milliseconds(&self, ticks: u64) -> u64 {
        let milliseconds = u128::from(ticks) * 1000 / u128::from(self.ticks_per_second);
        u64::try_from(milliseconds).unwrap_or(u64::MAX)
    }

    /// The time of so many ticks after the system's start, which is known to the second.
    fn time_of(&self, ticks: u64) -> Option<String> {
        let since_boot = i64::try_from(self.milliseconds(ticks)).ok()?;
        let milliseconds = self.boot?.checked_mul(1000)?.checked_add(since_boot)?;
        Some(Timestamp::from_millisecond(milliseconds).ok()?.to_string())
    }
}

fn names(mask: u64) -> Vec<String> {
    signals_in(mask).map(signal_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_as_it_is() {
        let snapshot = system_processes().unwrap();
        assert!(snapshot.processes.is_sorted_by_key(|process| process.pid));
        let own = snapshot.processes.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert_eq!(own.ppid, std::os::unix::process::parent_id());
        assert_eq!(own.argv, std::env::args().collect::<Vec<_>>());
        assert!(own.threads >= 1 && own.memory_bytes > 100_000, "{own:?}");
        assert_eq!(own.user, Some(super::super::account().user));
        let now: Timestamp = snapshot.taken_at.parse().unwrap();
        let started: Timestamp = own.started_at.as_ref().unwrap().parse().unwrap();
        let age = now.as_millisecond() - started.as_millisecond();
        assert!((-1000..3_600_000).contains(&age), "{age}");
        assert!(snapshot.cpus >= 1 && snapshot.memory_bytes > own.memory_bytes);
    }

    #[test]
    fn command_lines_have_a_bound_in_all() {
        let mut machine = Machine::look().unwrap();
        machine.arguments_left = 5;
        let own = ProcFolder::open(std::process::id()).unwrap();
        assert_eq!(machine.arguments(&own).concat().len(), 5);
        assert_eq!((machine.arguments(&own), machine.arguments_left), (Vec::new(), 0));
    }

    #[test]
    fn times_beyond_all_bounds_are_none() {
        let mut machine = Machine::look().unwrap();
        assert_eq!(machine.time_of(u64::MAX), None);
        (machine.boot, machine.ticks_per_second) = (Some(1_795_975_286), 100);
        assert_eq!(machine.time_of(150).as_deref(), Some("2026-11-29T18:01:27.5Z"));
        machine.boot = None;
        assert_eq!(machine.time_of(1), None);
    }
}
