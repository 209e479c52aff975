//! The first process of a system or container: it inherits everybody's orphans, and nobody else takes their exit status.
//!
//! Implementation note: waiting for any child would take the status of calls' own programs from those that wait for
//! them. So only children that nobody waits for are reaped: zombies in two looks in a row that no call has started.
//! Whoever waits for its own child does so within milliseconds.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::process_table;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Children that somebody waits for.
static OWN: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

/// A child that somebody waits for, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct WaitedFor(u32);

impl WaitedFor {
    /// Keeps the child from being reaped as an orphan.
    pub(crate) fn new(pid: u32) -> Self {
        OWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(pid);
        Self(pid)
    }
}

impl Drop for WaitedFor {
    fn drop(&mut self) {
        if let Some(own) = OWN.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            own.remove(&self.0);
        }
    }
}

/// Reaps orphans for ever, where this process is the first one; else ends at once.
pub(in crate::guest) async fn reap_orphans() {
    if std::process::id() != 1 {
        return;
    }
    let mut seen = HashSet::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let dead: HashSet<u32> = process_table::dead_children_of(1).into_iter().collect();
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        for pid in dead.intersection(&seen).filter(|pid| !own.contains(pid)) {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG); // gone already is as good
            }
        }
        seen = dead;
    }
}
