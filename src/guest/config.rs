//! What an agent is started with, all resolved: no defaults are filled in below this.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{HostName, Network, Origin, exec, gates::GateSettings};
use crate::{
    protocol::{DEFAULT_MAX_OUTPUT, Limits, MAX_JSON_BODY},
    token::WatchSettings,
};

/// The settings of one agent.
#[derive(Debug, Clone)]
pub struct Config {
    /// The token's file; it need not be there yet.
    pub token_file: PathBuf,
    /// The gates: files that all have to be there before calls are served.
    pub ready_files: Vec<PathBuf>,
    /// Names besides loopback's that a request may call the agent by.
    pub allow_hosts: Vec<HostName>,
    /// Web origins whose requests are let through.
    pub allow_origins: Vec<Origin>,
    /// The peers that are let in.
    pub allow_peers: Vec<Network>,
    /// Calls that run at one time.
    pub exec_slots: usize,
    /// Calls that may wait for a slot.
    pub exec_queue: usize,
    /// Most that a call waits for a slot.
    pub exec_queue_wait: Duration,
    /// Most that a buffered call may ask for as its time-out.
    pub exec_timeout_cap: Duration,
    /// Between asking a process to end and ending it.
    pub kill_grace: Duration,
    /// How long a call with a request id goes on without a caller, who may come back for it.
    pub orphan_grace: Duration,
    /// Where the files of runs lie while they run.
    pub runs_dir: PathBuf,
    /// How long running calls may go on once the agent is told to stop.
    pub drain: Duration,
    /// Connections that are served at one time; see [`server`](super::serve) for what happens beyond.
    pub max_connections: usize,
    /// The patience with callers.
    pub deadlines: Deadlines,
    /// How the token's file is watched.
    pub token_watch: WatchSettings,
    /// How often the gates are looked at.
    pub gate_interval: Duration,
}

/// The patience with callers.
#[derive(Debug, Clone)]
pub struct Deadlines {
    /// From the connection, or the end of the last answer, to the end of a request's headers.
    pub header: Duration,
    /// Between two pieces of a body.
    pub body_stall: Duration,
    /// For a whole body, so that a drip of single bytes ends too.
    pub body_total: Duration,
    /// For a caller to take a piece of an answer.
    pub write_stall: Duration,
    /// For a caller that still sends when its answer is out; it is read and dropped, so that it sees the answer.
    pub linger: Duration,
    /// For a connection beyond the limit, or of a peer that is not let in, in all.
    pub lobby: Duration,
}

impl Deadlines {
    /// The protocol's, and what it leaves open.
    pub const DEFAULT: Self = Self {
        header: Duration::from_secs(10),
        body_stall: Duration::from_secs(30),
        // 8 MiB at 70 KB/s, a tenth of the slowest link that was measured under emulation
        body_total: Duration::from_secs(120),
        write_stall: Duration::from_secs(60),
        linger: Duration::from_secs(5),
        lobby: Duration::from_secs(2),
    };
}

/// Calls at one time where nothing is said: most of them wait for something, so more than the machine has cores.
pub fn default_exec_slots() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    16.max(4 * cores)
}

impl Config {
    /// An agent for these addresses with everything at its default.
    pub fn new(token_file: PathBuf, runs_dir: PathBuf, listen: &[SocketAddr]) -> Self {
        Self {
            token_file,
            ready_files: Vec::new(),
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            allow_peers: Network::defaults(listen),
            exec_slots: default_exec_slots(),
            exec_queue: 1024,
            exec_queue_wait: Duration::from_secs(30),
            exec_timeout_cap: Duration::from_hours(1),
            kill_grace: Duration::from_millis(250),
            orphan_grace: Duration::from_secs(5),
            runs_dir,
            drain: Duration::from_secs(5),
            max_connections: super::sys::connection_limit(),
            deadlines: Deadlines::DEFAULT,
            token_watch: WatchSettings::DEFAULT,
            gate_interval: Duration::from_millis(250),
        }
    }

    pub(super) fn exec_settings(&self) -> exec::Settings {
        exec::Settings {
            slots: self.exec_slots,
            queue: self.exec_queue,
            queue_wait: self.exec_queue_wait,
            timeout_cap: self.exec_timeout_cap,
            kill_grace: self.kill_grace,
            orphan_grace: self.orphan_grace,
            runs_dir: self.runs_dir.clone(),
        }
    }

    pub(super) fn gate_settings(&self) -> GateSettings {
        GateSettings { files: self.ready_files.clone(), interval: self.gate_interval }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            exec_slots: u32::try_from(self.exec_slots).unwrap_or(u32::MAX),
            exec_queue: u32::try_from(self.exec_queue).unwrap_or(u32::MAX),
            exec_queue_wait_sec: self.exec_queue_wait.as_secs(),
            exec_timeout_cap_sec: self.exec_timeout_cap.as_secs(),
            max_json_body: MAX_JSON_BODY as u64,
            max_output_bytes: DEFAULT_MAX_OUTPUT,
        }
    }
}
