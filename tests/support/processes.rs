//! Real processes, looked up in `/proc`.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number of seconds for `sleep` that no other test of any process uses, so that its sleeps can be told apart.
pub fn unique_seconds() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 600 + COUNTER.fetch_add(1, Ordering::Relaxed), std::process::id())
}

/// The processes that live and have exactly these arguments.
pub fn with_args(args: &[&str]) -> Vec<u32> {
    let wanted: Vec<u8> = args.iter().flat_map(|arg| arg.bytes().chain([0])).collect();
    all()
        .into_iter()
        .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == wanted))
        .collect()
}

/// The living children of a process.
pub fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    all()
        .into_iter()
        .filter(|pid| {
            let [state, of] = stat(*pid);
            state != "Z" && of == parent
        })
        .collect()
}

/// Children of a process that have ended and whose exit status it has not taken.
pub fn dead_children_of(parent: u32) -> usize {
    let parent = parent.to_string();
    all().into_iter().map(stat).filter(|stat| stat[0] == "Z" && stat[1] == parent).count()
}

/// Who started a process, or inherited it; 0 where there is none.
pub fn parent_of(pid: u32) -> u32 {
    stat(pid)[1].parse().unwrap_or(0)
}

/// What a process is called.
pub fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Its state and its parent; empty where it is gone.
fn stat(pid: u32) -> [String; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().map(str::to_owned);
    [fields.next().unwrap_or_default(), fields.next().unwrap_or_default()]
}

/// The processes that live and have an argument with this in it.
pub fn mentioning(text: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let args = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.split(|byte| *byte == 0).any(|arg| String::from_utf8_lossy(arg).contains(text))
    };
    all().into_iter().filter(has).collect()
}

/// Sends a signal to a process that a test has started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Ends processes that a test has started.
pub fn kill(pids: &[u32]) {
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn all() -> Vec<u32> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
