//! The bounds of exec, all settings so that tests can shorten them.

use std::{path::PathBuf, time::Duration};

use super::super::process::RingSize;
use crate::protocol::ProcessMode;

/// How many calls, for how long, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Calls that run at one time.
    pub slots: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
    /// How long a call waits for a slot.
    pub queue_wait: Duration,
    /// How long a call waits for its turn in a session.
    pub session_wait: Duration,
    /// Detached and attached calls at one time: they may run for days, so they take no slots.
    pub jobs: usize,
    /// Bytes of an attached or detached call's output that are kept.
    pub ring: usize,
    /// Bytes of a streamed call's output that are kept. What is on its way to a reader, as far as the agent knows, it
    /// has; a connection that breaks loses all of that: what the program may be ahead, the send buffer here, and up to
    /// 6 MiB that Linux gives a receive buffer there.
    pub stream_ring: usize,
    /// Bytes by which a program may be ahead of the reader of its stream.
    pub window: usize,
    /// The longest silence of a streamed answer.
    pub stream_keep_alive: Duration,
    /// How long after a program's end a reader may take for its last output.
    pub delivery: Duration,
    /// The longest time-out that a buffered call may ask for.
    pub timeout_cap: Duration,
    /// Between TERM and KILL.
    pub kill_grace: Duration,
    /// How long a call whose caller gave it an id lives without any caller.
    pub orphan_grace: Duration,
    /// After a program's exit, how long output of its children is waited for.
    pub drain_grace: Duration,
    /// The folder for the files of runs.
    pub runs_dir: PathBuf,
    /// Hold calls' processes by cgroups where the system lets us.
    pub use_cgroups: bool,
    /// Show scripts in the lines that say who ran what.
    pub audit_scripts: bool,
    /// The executable whose `agent drain` takes over left-behind output and whose `agent hold` the orphans of long calls;
    /// `None` does it in this process and in a copy of it.
    pub drainer: Option<PathBuf>,
}

impl Settings {
    /// How long a result is kept for a repeated request.
    pub const KEEP: Duration = Duration::from_mins(10);
    /// Bytes of results that are kept in all.
    pub const KEEP_BYTES: usize = 64 * 1024 * 1024;
    /// Bytes of one stream that a call may ask to be kept.
    pub const MAX_OUTPUT: u64 = 32 * 1024 * 1024;

    /// How long an ended call can be asked for by its process id.
    pub const KEEP_RECORD: Duration = Duration::from_hours(1);
    /// How many ended calls can be, at most.
    pub const MOST_RECORDS: usize = 256;

    /// The size of a call's ring.
    pub(super) const fn ring_size(&self, mode: ProcessMode) -> RingSize {
        let capacity = if matches!(mode, ProcessMode::Streamed) { self.stream_ring } else { self.ring };
        RingSize { capacity, window: self.window }
    }

    /// The defaults, with the folder of this account and without a drainer.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            // calls mostly wait; with fewer slots than cores a long one would hold up short ones
            slots: (4 * cores).max(16),
            queue: 1024,
            queue_wait: Duration::from_secs(30),
            session_wait: Duration::from_hours(1),
            jobs: 128,
            ring: 2 * 1024 * 1024,
            stream_ring: 8 * 1024 * 1024,
            window: 256 * 1024,
            stream_keep_alive: Duration::from_secs(15),
            delivery: Duration::from_mins(10),
            timeout_cap: Duration::from_hours(1),
            kill_grace: Duration::from_millis(250),
            orphan_grace: Duration::from_secs(5),
            drain_grace: Duration::from_millis(50),
            runs_dir: super::super::sys::default_runs_dir(),
            use_cgroups: true,
            audit_scripts: false,
            drainer: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}
