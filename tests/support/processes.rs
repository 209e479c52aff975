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
    all()
        .into_iter()
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            fields.first() != Some(&"Z") && fields.get(1) == Some(&parent.to_string().as_str())
        })
        .collect()
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
