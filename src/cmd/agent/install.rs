//! `podlink agent install`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::watch;

use super::{
    super::{Exit, Failure, Outcome, Printer},
    places::{ModeArg, StateArgs},
};
use crate::{
    guest::{
        HostName, MalformedHost, Network, Signals, default_token_file,
        install::{self, Outcome as Installed, Places, Settings},
    },
    protocol::DEFAULT_PORT,
};

/// Install the agent in this guest, and have it started from now on
#[derive(Debug, Args)]
#[command(after_help = "\
Steps, each tested first and then set; a run that was killed is taken up by another, or by the agent's next start:
  firewall   a rule for the port (Windows, firewalld)        token      the bundle's, moved to where others cannot read it
  defender   no scans of the program's folder (Windows)      autostart  Run key (Windows), systemd (Linux)
  exe        this program, copied to its place               agent      started at once
  acl        others kept out of program and state            hook NAME  the bundle's hooks, in the order of their names
Ends with 14 when a step that is required (exe, token, autostart, agent, hooks) has failed. A token that is missing
fails nothing: the agent waits for it.

Examples:
  podlink agent install                             from the folder with agent_token.txt and hooks/ in it
  podlink agent install --bundle /oem --mode service
  podlink agent install --listen 127.0.0.1:8765     for programs of this guest alone")]
pub(super) struct InstallArgs {
    /// Folder with the token's copy `agent_token.txt` and the folder `hooks` [default: where this program lies]
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,

    /// Address and port that the agent listens on (can be repeated)
    #[arg(long, value_name = "ADDRESS", env = "PODLINK_INSTALL_LISTEN", value_delimiter = ',', default_values_t = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT))])]
    listen: Vec<SocketAddr>,

    /// Name besides localhost that requests may call the agent by (can be repeated)
    #[arg(long, value_name = "HOST", value_parser = host_name)]
    allow_host: Vec<String>,

    /// Network that connections may come from (can be repeated); as for `agent serve`
    #[arg(long, value_name = "CIDR")]
    allow_peer: Vec<Network>,

    /// What starts the agent from now on [default: session; service for root on Linux]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,

    /// Folder for the program
    #[arg(long, value_name = "DIR")]
    program_dir: Option<PathBuf>,

    /// File for the agent's own copy of the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Longest time that a hook may take, in seconds
    #[arg(long, value_name = "SECS", default_value_t = Settings::HOOK_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    hook_timeout: u64,

    #[command(flatten)]
    state: StateArgs,

    /// Folder before the system's own ones (`/etc/systemd`, …)
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,

    #[arg(long, value_name = "MS", hide = true)]
    hook_timeout_ms: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    agent_deadline: Option<u64>,
    #[arg(long, value_name = "MS", hide = true)]
    lock_patience: Option<u64>,
}

impl InstallArgs {
    fn settings(&self) -> anyhow::Result<Settings> {
        let no_home = "no home folder is known";
        let state = self.state.folder()?;
        let exe = match &self.program_dir {
            Some(folder) => Places::exe_in(&absolute(folder)?),
            None => Places::default_exe().context(no_home).context("name the --program-dir")?,
        };
        let token_file = match &self.token_file {
            Some(file) => absolute(file)?,
            None => default_token_file().context(no_home).context("name the --token-file")?,
        };
        let bundle = match &self.bundle {
            Some(folder) => absolute(folder)?,
            None => install::default_bundle(&exe, &state)?,
        };
        let or = |ms: Option<u64>, default| ms.map_or(default, Duration::from_millis);
        Ok(Settings {
            places: Places { bundle, exe, state, token_file, root: self.root.clone() },
            mode: self.mode.map(Into::into),
            listen: self.listen.clone(),
            allow_host: self.allow_host.clone(),
            allow_peer: self.allow_peer.iter().map(ToString::to_string).collect(),
            hook_timeout: or(self.hook_timeout_ms, Duration::from_secs(self.hook_timeout)),
            agent_deadline: or(self.agent_deadline, Settings::AGENT_DEADLINE),
            lock_patience: or(self.lock_patience, Settings::LOCK_PATIENCE),
        })
    }
}

/// Checked now, and kept as it was written.
fn host_name(text: &str) -> Result<String, MalformedHost> {
    text.parse::<HostName>().map(|_| text.to_owned())
}

/// What is written down has to hold wherever the agent is started from.
fn absolute(path: &std::path::Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))
}

pub(super) fn run(args: &InstallArgs) -> Outcome {
    let settings = args.settings()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the installer's thread")?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let (stop, stopped) = watch::channel(false);
        let printer = Printer::new(false);
        let mut ended_by = None;
        let installing = install::install(settings, stopped, move |line| printer.line(line));
        let mut installing = std::pin::pin!(installing);
        let outcome = loop {
            tokio::select! {
                outcome = &mut installing => break outcome,
                signal = signals.next() => {
                    ended_by = Some(signal);
                    stop.send_replace(true);
                }
            }
        };
        outcome.map(|outcome| (outcome, ended_by)).map_err(anyhow::Error::from)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome? {
        (Installed::Complete | Installed::WaitingForToken(_), _) => Ok(Exit::SUCCESS),
        (Installed::Failed { step, reason }, _) => {
            Err(Failure::install_failed(format!("the installation failed at the step {step}: {reason}")))
        }
        (Installed::Interrupted, signal) => {
            let exit = signal.map_or(Exit::FAILED, |signal| Exit(128 + signal.number()));
            let detail = "interrupted; run `podlink agent install` again, or leave the rest to the agent's next start";
            Err(Failure::interrupted(detail, exit))
        }
    }
}
