//! `podlink agent …`: what runs in the guest.

mod drain;
mod hold;
mod install;
mod interrupt;
mod patience;
mod places;
mod restart;
mod serve;
mod status;
mod supervise;
mod uninstall;
mod values;

use clap::{Args, Subcommand};

use super::Outcome;

/// Run in the guest: the agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  podlink agent install                       have it started from now on
  podlink agent status
  podlink agent serve --listen 0.0.0.0:8765 --token-file /oem/agent_token.txt")]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Install(Box<install::InstallArgs>),
    Status(status::StatusArgs),
    Restart(restart::RestartArgs),
    Uninstall(uninstall::UninstallArgs),
    #[command(hide = true)]
    Drain(drain::DrainArgs),
    #[command(hide = true)]
    Hold(hold::HoldArgs),
    #[command(hide = true)]
    Interrupt(interrupt::InterruptArgs),
}

impl AgentArgs {
    /// Whether the command prints JSON.
    pub(super) const fn is_json(&self) -> bool {
        matches!(&self.command, Command::Status(args) if args.json)
    }
}

pub(super) fn run(args: AgentArgs) -> Outcome {
    match args.command {
        Command::Serve(args) => serve::run(*args),
        Command::Install(args) => install::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Drain(args) => drain::run(args),
        Command::Hold(args) => hold::run(args),
        Command::Interrupt(args) => interrupt::run(args),
    }
}
