//! `podlink agent serve`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::oneshot;

use super::{
    super::{Exit, Outcome, Printer},
    patience::PatienceArgs,
    places::StateArgs,
    supervise,
    values::{Format, Mode, at_least_one, parsed},
};
use crate::{
    guest::{
        self, AuthDelays, Backoff, Claim, Config, Deadlines, Ended, EventSettings, HostName, Keep, Keeper, LogFormat,
        LogGuard, LogSettings, Network, Origin, PidFile, Rotation, ServiceStart, Signals, StopRequests,
        SupervisorSettings, calls::Settings, install::Installation,
    },
    protocol::{DEFAULT_PORT, RunMode},
};

/// How long the end of the process waits for threads that hang in a system call.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(1);

/// Answer calls until told to stop
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  podlink agent serve                                     on loopback, for this machine alone
  podlink agent serve --listen 0.0.0.0:8765 \\
      --token-file /oem/agent_token.txt \\
      --ready-file /var/lib/podlink/install.done          in a guest, ready once its installation is done")]
pub(super) struct ServeArgs {
    /// Address and port to listen on (can be repeated)
    ///
    /// Where none is given: loopback, port 8765.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,

    /// Be the agent of the installation that `podlink agent install` has made: with its settings, where they are not
    /// given here, ready once it is complete, and taking it up where it was interrupted
    #[arg(long)]
    installed: bool,

    #[command(flatten)]
    state: StateArgs,

    /// File with the token; waited for while it is missing
    ///
    /// Where it is not given: `/etc/podlink/agent_token.txt` for root, else `podlink/agent_token.txt` in the user's
    /// configuration folder. On Windows `podlink\agent_token.txt` in `ProgramData` for an administrator, else in the
    /// user's `AppData\Local`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// File that has to be there before calls are served (can be repeated)
    ///
    /// While it is missing, a file of the same name with .failed after it, or in place of its extension, says that it
    /// never will be; its text is told as the reason.
    #[arg(long, value_name = "FILE")]
    ready_file: Vec<PathBuf>,

    /// Name besides localhost that requests may call the agent by (can be repeated)
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<HostName>,

    /// Web origin whose requests are let through (can be repeated)
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,

    /// Network that connections may come from (can be repeated)
    ///
    /// Where none is given: loopback, and private networks as well once the agent listens beyond loopback.
    #[arg(long, value_name = "CIDR")]
    allow_peer: Vec<Network>,

    /// Calls that run at one time [default: 4 for each core, at least 16]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    exec_slots: Option<usize>,

    /// Calls that may wait for a slot
    #[arg(long, value_name = "N", default_value_t = 1024)]
    exec_queue: usize,

    /// Longest time-out that a call may ask for, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    exec_timeout_cap: u64,

    /// How long running calls may go on after SIGTERM, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=86_400))]
    drain: u64,

    /// File to append the log to, instead of stderr; `PODLINK_LOG` sets what is logged (info, debug, …)
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// How a line of the log looks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,

    /// Bytes at which a log file is turned over: it is renamed to FILE.1, and a new one begun
    #[arg(long, value_name = "BYTES", default_value_t = Rotation::DEFAULT.max_bytes, value_parser = clap::value_parser!(u64).range(1024..))]
    log_max_bytes: u64,

    /// Files that are kept besides; those older than 30 days go in any case
    #[arg(long, value_name = "N", default_value_t = Rotation::DEFAULT.files, value_parser = clap::value_parser!(u32).range(1..=1000))]
    log_files: u32,

    /// File of their own for the lines that say who changed what
    #[arg(long, value_name = "FILE")]
    audit_file: Option<PathBuf>,

    /// Show scripts in those lines, secrets in them included, and not just their SHA-256
    #[arg(long)]
    audit_scripts: bool,

    /// Log of the guest's installation, to be handed out by `GET /logs`
    #[arg(long, value_name = "FILE")]
    install_log: Option<PathBuf>,

    /// Have a small parent process start the agent again where it crashes
    ///
    /// The parent ends with an agent that ends in order; where one runs on the port already there is nothing to do. It
    /// pauses between starts, at first hardly, then up to a minute, and logs why the agent ended.
    #[arg(long, conflicts_with = "supervised")]
    supervise: bool,

    /// Listen to a supervisor on stdin
    #[arg(long, hide = true)]
    supervised: bool,

    /// What starts the agent, to be told by `/whoami`
    #[arg(long, value_name = "MODE", hide = true)]
    run_mode: Option<Mode>,

    /// Be a service, started by the system's service manager
    #[arg(long, hide = true, conflicts_with = "supervised")]
    service: bool,

    /// Say that a service manager starts this agent again where it fails, or ends to be restarted
    #[arg(long, hide = true)]
    restarted_by_manager: bool,

    /// File to hold locked, with the pid in it, while the agent lives
    #[arg(long, value_name = "FILE", hide = true)]
    pid_file: Option<PathBuf>,

    /// Between two looks at the installation, in milliseconds
    #[arg(long, value_name = "MS", hide = true)]
    tend_interval: Option<u64>,

    /// Folder for the files of runs
    #[arg(long, value_name = "DIR", hide = true)]
    runs_dir: Option<PathBuf>,

    /// Between asking a process to end and ending it, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 250, hide = true, value_parser = clap::value_parser!(u64).range(..=60_000))]
    kill_grace: u64,

    /// Tell calls' processes apart by their environment, even where control groups can be written
    #[arg(long, hide = true)]
    no_cgroups: bool,

    #[command(flatten)]
    patience: PatienceArgs,
}

impl ServeArgs {
    /// Fills in what the installation knows, and then what holds for every agent.
    fn resolve(&mut self) -> anyhow::Result<Option<Installation>> {
        let installation = if self.installed { Some(self.find_installation()?) } else { None };
        if let Some(installation) = &installation {
            let serve = installation.serve();
            if self.listen.is_empty() {
                self.listen.clone_from(&serve.listen);
            }
            if self.allow_host.is_empty() {
                self.allow_host = parsed(&serve.allow_host)?;
            }
            if self.allow_peer.is_empty() {
                self.allow_peer = parsed(&serve.allow_peer)?;
            }
            self.token_file.get_or_insert_with(|| serve.token_file.clone());
            self.log_file.get_or_insert_with(|| installation.agent_log());
            self.install_log.get_or_insert_with(|| installation.install_log());
        }
        if self.listen.is_empty() {
            self.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))];
        }
        Ok(installation)
    }

    fn find_installation(&self) -> anyhow::Result<Installation> {
        let state = self.state.folder()?;
        let none = || format!("nothing is installed in {}; run `podlink agent install` first", state.display());
        Installation::find(&state)?.with_context(none)
    }

    fn log_settings(&self) -> LogSettings {
        LogSettings {
            file: self.log_file.clone(),
            audit_file: self.audit_file.clone(),
            format: match self.log_format {
                Format::Text => LogFormat::Text,
                Format::Json => LogFormat::Json,
            },
            rotation: Rotation { max_bytes: self.log_max_bytes, files: self.log_files },
        }
    }

    fn config(&self, log: &LogGuard, installation: Option<Installation>) -> anyhow::Result<Config> {
        let token_file = match &self.token_file {
            Some(path) => path.clone(),
            None => guest::default_token_file().context("no home folder is known; name the token's --token-file")?,
        };
        let defaults = Config::new(token_file, &self.listen);
        let or = |ms: Option<u64>, default| ms.map_or(default, Duration::from_millis);
        Ok(Config {
            ready_files: self.ready_file.clone(),
            mode: self.mode(installation.as_ref()),
            installation,
            tend_interval: or(self.tend_interval, defaults.tend_interval),
            allow_hosts: self.allow_host.clone(),
            allow_origins: self.allow_origin.clone(),
            allow_peers: if self.allow_peer.is_empty() { defaults.allow_peers } else { self.allow_peer.clone() },
            exec: Settings {
                slots: self.exec_slots.unwrap_or(defaults.exec.slots),
                queue: self.exec_queue,
                queue_wait: or(self.patience.exec_queue_wait, defaults.exec.queue_wait),
                timeout_cap: Duration::from_secs(self.exec_timeout_cap),
                kill_grace: Duration::from_millis(self.kill_grace),
                orphan_grace: or(self.patience.orphan_grace, defaults.exec.orphan_grace),
                session_wait: or(self.patience.session_wait, defaults.exec.session_wait),
                stream_keep_alive: or(self.patience.stream_keep_alive, defaults.exec.stream_keep_alive),
                runs_dir: self.runs_dir.clone().unwrap_or(defaults.exec.runs_dir),
                use_cgroups: !self.no_cgroups,
                audit_scripts: self.audit_scripts,
                // what Linux calls it stays right when the file is replaced by a newer version
                drainer: std::env::current_exe().ok(),
                ..defaults.exec
            },
            drain: Duration::from_secs(self.drain),
            max_connections: self.patience.max_connections.unwrap_or(defaults.max_connections),
            deadlines: Deadlines {
                header: or(self.patience.header_deadline, defaults.deadlines.header),
                body_stall: or(self.patience.body_stall, defaults.deadlines.body_stall),
                body_total: or(self.patience.body_deadline, defaults.deadlines.body_total),
                write_stall: or(self.patience.write_stall, defaults.deadlines.write_stall),
                attach_request: or(self.patience.attach_deadline, defaults.deadlines.attach_request),
                ping: or(self.patience.ping_interval, defaults.deadlines.ping),
                snapshot: or(self.patience.snapshot_deadline, defaults.deadlines.snapshot),
                ..defaults.deadlines
            },
            auth_delays: AuthDelays {
                first: or(self.patience.auth_delay, defaults.auth_delays.first),
                longest: or(self.patience.auth_delay_cap, defaults.auth_delays.longest),
                window: or(self.patience.auth_window, defaults.auth_delays.window),
                places: self.patience.auth_delayed.unwrap_or(defaults.auth_delays.places),
                ..defaults.auth_delays
            },
            log: Some(log.source()),
            log_tap: log.tap(),
            install_log: self.install_log.clone().or(defaults.install_log),
            log_files: self.log_file.iter().chain(&self.audit_file).cloned().collect(),
            keep: Keep {
                age: or(self.patience.keep_logs, defaults.keep.age),
                interval: or(self.patience.sweep_interval, defaults.keep.interval),
            },
            events: EventSettings {
                keep_alive: or(self.patience.events_keep_alive, defaults.events.keep_alive),
                most: self.patience.events_kept.unwrap_or(defaults.events.most),
                ..defaults.events
            },
            ..defaults
        })
    }

    fn mode(&self, installation: Option<&Installation>) -> RunMode {
        match self.run_mode {
            Some(mode) => mode.into(),
            None if self.service => RunMode::Service,
            None => installation.map_or(RunMode::Manual, Installation::mode),
        }
    }

    fn backoff(&self) -> Backoff {
        let or = |ms: Option<u64>, default| ms.map_or(default, Duration::from_millis);
        Backoff {
            first: or(self.patience.restart_pause, Backoff::DEFAULT.first),
            longest: or(self.patience.restart_pause_cap, Backoff::DEFAULT.longest),
            steady: or(self.patience.restart_steady, Backoff::DEFAULT.steady),
        }
    }
}

pub(super) fn run(args: ServeArgs) -> Outcome {
    if args.service {
        let body = |start: ServiceStart| {
            let ended = run_here(args, Some(start));
            // nobody reads it but who starts it by hand; the log has it
            ended.unwrap_or_else(|failure| failure.report(Printer::new(false))).0
        };
        let code = guest::as_service(body).context("cannot be a service")?;
        return Ok(Exit(code));
    }
    run_here(args, None)
}

/// The agent, or its supervisor, in this process.
fn run_here(mut args: ServeArgs, service: Option<ServiceStart>) -> Outcome {
    let installation = args.resolve()?;
    let settings = args.log_settings();
    // one log for both, so that it tells the whole story; who changed what is the agent's to say
    let audit_file = settings.audit_file.clone().filter(|_| !args.supervise);
    let log = guest::start_log(&LogSettings { audit_file, ..settings })?;
    let mut keeper = if args.restarted_by_manager { Keeper::Manager } else { Keeper::Nobody };
    let requests = service.map(|start| {
        if start.restarts {
            keeper = Keeper::Manager;
        }
        if let Err(error) = start.recovery {
            tracing::warn!(%error, "the service manager could not be told to start this service again should it fail");
        }
        start.requests
    });
    if args.supervise {
        let backoff = args.backoff();
        return supervise::run(args.log_file.is_some(), requests, |settings| SupervisorSettings {
            backoff,
            ..settings
        });
    }
    let config = Config { keeper, ..args.config(&log, installation)? };
    let log_file = args.log_file.clone();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the agent's threads")?;
    let outcome = runtime.block_on(serve(args, config, requests));
    if let (Err(error), Some(_)) = (&outcome, &log_file) {
        // whoever started the agent may read its log alone
        tracing::error!("{error:#}");
    }
    runtime.shutdown_timeout(RUNTIME_PATIENCE);
    Ok(outcome?)
}

async fn serve(args: ServeArgs, mut config: Config, requests: Option<StopRequests>) -> anyhow::Result<Exit> {
    // before anything can be found by others: who waits for the agent may want to end it at once
    let mut signals = Signals::listen().context("cannot listen for signals")?.and(requests);
    if args.supervised {
        let (requests, lead) = guest::hear_supervisor().context("cannot listen to the supervisor")?;
        signals = signals.and(Some(requests));
        config.keeper = Keeper::Supervisor(lead);
    }
    let claimed = tokio::select! {
        claimed = guest::claim(&args.listen) => claimed?,
        _ = signals.next() => return Ok(Exit::SUCCESS),
    };
    let listeners = match claimed {
        Claim::Bound(listeners) => listeners,
        Claim::AlreadyRuns { address, agent_id, version } => {
            let line = format!("an agent already runs and answers on {address} (agent {agent_id}, version {version})");
            tracing::info!("{line}");
            Printer::new(false).line(&line);
            return Ok(Exit::SUCCESS);
        }
    };
    // never let go of: it says that this process lives, and so it goes when the process does
    std::mem::forget(args.pid_file.as_deref().map(PidFile::take).transpose()?);

    let (stop, stopped) = oneshot::channel::<()>();
    let (hurry, hurried) = oneshot::channel::<()>();
    let third_signal = async {
        signals.next().await;
        drop(stop);
        signals.next().await;
        tracing::warn!("told twice: killing what runs");
        drop(hurry);
        signals.next().await
    };
    let come = async |told: oneshot::Receiver<()>| told.await.unwrap_or(());
    tokio::select! {
        served = guest::serve(config, listeners, come(stopped), come(hurried)) => {
            Ok(match served? {
                Ended::Stopped => Exit::SUCCESS,
                Ended::ToRestart => Exit::RESTART,
            })
        }
        signal = third_signal => {
            tracing::error!(?signal, "told three times: ending without having made sure of anything");
            Ok(Exit(128 + signal.number()))
        }
    }
}
