//! What an agent is started with, all resolved: no defaults are filled in below this.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    AuthDelays, HostName, Keeper, LogSource, Network, Origin, calls,
    events::{self, LogTap},
    gates::GateSettings,
    install::{Installation, TendSettings},
};
use crate::{
    protocol::{Limits, MAX_JSON_BODY, RunMode},
    token::WatchSettings,
};

/// The settings of one agent.
#[derive(Debug, Clone)]
pub struct Config {
    /// The token's file; it need not be there yet.
    pub token_file: PathBuf,
    /// The gates: files that all have to be there before calls are served.
    pub ready_files: Vec<PathBuf>,
    /// The installation that the agent belongs to: it waits for its end, tells of it, and takes it up where its installer
    /// was killed.
    pub installation: Option<Installation>,
    /// How often the installation is tended.
    pub tend_interval: Duration,
    /// Names besides loopback's that a request may call the agent by.
    pub allow_hosts: Vec<HostName>,
    /// Web origins whose requests are let through.
    pub allow_origins: Vec<Origin>,
    /// The peers that are let in.
    pub allow_peers: Vec<Network>,
    /// The bounds of calls, and where their files lie.
    pub exec: calls::Settings,
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
    /// How wrong tokens are slowed.
    pub auth_delays: AuthDelays,
    /// The agent's own log, where it is to be handed out.
    pub log: Option<LogSource>,
    /// The log of the guest's installation, likewise; it need not be there.
    pub install_log: Option<PathBuf>,
    /// The log files whose old ones are to be swept.
    pub log_files: Vec<PathBuf>,
    /// How long they are kept.
    pub keep: Keep,
    /// The bounds of the events.
    pub events: events::Settings,
    /// The log whose warnings become events.
    pub log_tap: LogTap,
    /// What started the agent, for `/whoami`.
    pub mode: RunMode,
    /// What starts the agent again where it is asked to restart.
    pub keeper: Keeper,
}

/// The patience with callers.
#[derive(Debug, Clone)]
pub struct Deadlines {
    /// From the connection, or the end of the last answer, to the end of a request's headers.
    pub header: Duration,
    /// Between two pieces of a body.
    pub body_stall: Duration,
    /// How long a program may take nothing of what a request brings for its stdin.
    pub stdin_stall: Duration,
    /// For a whole body, so that a drip of single bytes ends too.
    pub body_total: Duration,
    /// For a caller to take a piece of an answer.
    pub write_stall: Duration,
    /// For a caller that still sends when its answer is out; it is read and dropped, so that it sees the answer.
    pub linger: Duration,
    /// For the first message of a client that attaches.
    pub attach_request: Duration,
    /// Between the signs of life that an attached client is asked for; one that has not answered the last is dropped.
    pub ping: Duration,
    /// For attached clients to take their last words, once the agent has ended their calls.
    pub farewell: Duration,
    /// For a connection beyond the limit, or of a peer that is not let in, in all.
    pub lobby: Duration,
    /// For a look at the whole system, waiting for one that is under way included.
    pub snapshot: Duration,
}

/// How long files are kept, and how often they are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// Since they were last written.
    pub age: Duration,
    /// Between two sweeps; the first is at the start.
    pub interval: Duration,
}

impl Keep {
    /// Thirty days, looked at daily.
    pub const DEFAULT: Self = Self { age: Duration::from_hours(30 * 24), interval: Duration::from_hours(24) };
}

impl Deadlines {
    /// The protocol's, and what it leaves open.
    pub const DEFAULT: Self = Self {
        header: Duration::from_secs(10),
        body_stall: Duration::from_secs(30),
        stdin_stall: Duration::from_mins(5),
        // 8 MiB at 70 KB/s, a tenth of the slowest link that was measured under emulation
        body_total: Duration::from_mins(2),
        write_stall: Duration::from_mins(1),
        linger: Duration::from_secs(5),
        attach_request: Duration::from_secs(10),
        ping: Duration::from_secs(30),
        farewell: Duration::from_secs(1),
        lobby: Duration::from_secs(2),
        snapshot: super::looks::Looks::PATIENCE,
    };
}

impl Config {
    /// An agent for these addresses with everything at its default.
    pub fn new(token_file: PathBuf, listen: &[SocketAddr]) -> Self {
        Self {
            token_file,
            ready_files: Vec::new(),
            installation: None,
            tend_interval: Duration::from_secs(1),
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            allow_peers: Network::defaults(listen),
            exec: calls::Settings::new(),
            drain: Duration::from_secs(5),
            max_connections: super::sys::connection_limit(),
            deadlines: Deadlines::DEFAULT,
            token_watch: WatchSettings::DEFAULT,
            gate_interval: Duration::from_millis(250),
            auth_delays: AuthDelays::DEFAULT,
            log: None,
            install_log: super::sys::default_install_log(),
            log_files: Vec::new(),
            keep: Keep::DEFAULT,
            events: events::Settings::DEFAULT,
            log_tap: LogTap::default(),
            mode: RunMode::Manual,
            keeper: Keeper::Nobody,
        }
    }

    pub(super) fn gate_settings(&self) -> GateSettings {
        GateSettings {
            files: self.ready_files.clone(),
            installation: self.installation.clone(),
            interval: self.gate_interval,
        }
    }

    pub(super) fn tend_settings(&self) -> Option<TendSettings> {
        let installation = self.installation.clone()?;
        Some(TendSettings { installation, interval: self.tend_interval })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            exec_slots: u32::try_from(self.exec.slots).unwrap_or(u32::MAX),
            exec_queue: u32::try_from(self.exec.queue).unwrap_or(u32::MAX),
            exec_queue_wait_sec: self.exec.queue_wait.as_secs(),
            exec_session_wait_sec: self.exec.session_wait.as_secs(),
            exec_jobs: u32::try_from(self.exec.jobs).unwrap_or(u32::MAX),
            exec_ring_bytes: self.exec.ring as u64,
            exec_timeout_cap_sec: self.exec.timeout_cap.as_secs(),
            max_json_body: MAX_JSON_BODY as u64,
            max_output_bytes: calls::Settings::MAX_OUTPUT,
        }
    }
}
