//! `podlink pod …`: what is done with a pod that `setup` has made.

mod attach;
mod credentials;
mod detach_keys;
mod doctor;
mod down;
mod event_line;
mod events;
mod exec;
mod info;
mod interactive;
mod job;
mod kill;
mod list;
mod live;
mod logs;
mod passing;
mod pause;
mod ps;
mod restart;
mod sessions;
mod shell;
pub(super) mod signal;
mod stats;
mod status;
mod table;
mod time_sync;
mod top;
mod up;
mod wait;
mod wait_ready;

pub(super) use self::exec::tip as exec_tip;
use super::{Exit, Failure, Outcome, Printer};
use crate::host::{Error, ErrorKind, Home, Pod, PodName};

/// Use a pod: start it, wait for it, run things in it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod up && podlink pod wait-ready
  podlink pod exec 'Get-Date'
  podlink pod shell
  podlink pod down")]
pub(super) struct PodArgs {
    #[command(subcommand)]
    command: PodCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PodCommand {
    #[command(alias = "start")]
    Up(up::UpArgs),
    Exec(exec::ExecArgs),
    Shell(shell::ShellArgs),
    Ps(ps::PsArgs),
    Attach(attach::AttachArgs),
    Wait(wait::WaitArgs),
    Kill(kill::KillArgs),
    Sessions(sessions::SessionsArgs),
    Top(top::TopArgs),
    Info(info::InfoArgs),
    Stats(stats::StatsArgs),
    TimeSync(time_sync::TimeSyncArgs),
    WaitReady(wait_ready::WaitReadyArgs),
    Status(status::StatusArgs),
    List(list::ListArgs),
    Events(events::EventsArgs),
    Logs(logs::LogsArgs),
    Credentials(credentials::CredentialsArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Restart(restart::RestartArgs),
    #[command(alias = "stop")]
    Down(down::DownArgs),
    Doctor(doctor::DoctorArgs),
}

/// Which pod.
#[derive(Debug, clap::Args)]
pub(super) struct PodChoice {
    /// The pod's name
    #[arg(long = "pod", value_name = "NAME", env = "PODLINK_POD", hide_env_values = true, default_value = PodName::DEFAULT)]
    pub(super) name: PodName,
}

impl PodChoice {
    fn load(&self) -> Result<Pod, Error> {
        Pod::load(&Home::from_env()?, &self.name)
    }
}

impl PodArgs {
    /// Whether the chosen command was given `--json`.
    pub(super) fn is_json(&self) -> bool {
        match &self.command {
            PodCommand::Up(args) => args.json,
            PodCommand::Exec(args) => args.json,
            PodCommand::Ps(args) => args.json,
            PodCommand::Wait(args) => args.json,
            PodCommand::Kill(args) => args.json,
            PodCommand::Sessions(args) => args.json,
            PodCommand::Top(args) => args.json,
            PodCommand::Info(args) => args.json,
            PodCommand::Stats(args) => args.json,
            PodCommand::TimeSync(args) => args.json,
            PodCommand::WaitReady(args) => args.json,
            PodCommand::Status(args) => args.json,
            PodCommand::List(args) => args.json,
            PodCommand::Events(args) => args.json,
            PodCommand::Logs(args) => args.json,
            PodCommand::Shell(_) | PodCommand::Attach(_) => false,
            PodCommand::Credentials(args) => args.json,
            PodCommand::Pause(args) => args.json,
            PodCommand::Resume(args) => args.json,
            PodCommand::Restart(args) => args.json,
            PodCommand::Down(args) => args.json,
            PodCommand::Doctor(args) => args.json,
        }
    }
}

pub(super) fn run(args: PodArgs) -> Outcome {
    let printer = Printer::new(args.is_json());
    match args.command {
        PodCommand::Up(args) => up::run(&args, printer),
        PodCommand::Exec(args) => exec::run(args, printer),
        PodCommand::Shell(args) => shell::run(&args, printer),
        PodCommand::Ps(args) => ps::run(&args, printer),
        PodCommand::Attach(args) => attach::run(&args, printer),
        PodCommand::Wait(args) => wait::run(&args, printer),
        PodCommand::Kill(args) => kill::run(args, printer),
        PodCommand::Sessions(args) => sessions::run(&args, printer),
        PodCommand::Top(args) => top::run(&args, printer),
        PodCommand::Info(args) => info::run(&args, printer),
        PodCommand::Stats(args) => stats::run(&args, printer),
        PodCommand::TimeSync(args) => time_sync::run(&args, printer),
        PodCommand::WaitReady(args) => wait_ready::run(&args, printer),
        PodCommand::Status(args) => status::run(&args, printer),
        PodCommand::List(args) => list::run(&args, printer),
        PodCommand::Events(args) => events::run(&args, printer),
        PodCommand::Logs(args) => logs::run(&args, printer),
        PodCommand::Credentials(args) => credentials::run(&args, printer),
        PodCommand::Pause(args) => pause::pause(&args, printer),
        PodCommand::Resume(args) => pause::resume(&args, printer),
        PodCommand::Restart(args) => restart::run(&args, printer),
        PodCommand::Down(args) => down::run(&args, printer),
        PodCommand::Doctor(args) => doctor::run(&args, printer),
    }
}

/// Runs one command's future to its end, on this thread.
pub(super) fn block_on<T, E: From<Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorKind::Internal, "could not start the runtime").with_source(error))?;
    runtime.block_on(future)
}

/// Likewise, or 0 for no limit.
fn seconds_or_none(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { seconds(text).map_err(|error| format!("{error}, or 0 for none")) }
}

/// A number of seconds on the command line.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => Err("not a number of seconds above 0".to_owned()),
    }
}
