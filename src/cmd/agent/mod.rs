//! `podlink agent …`: what runs in the guest.

mod drain;
mod hold;
mod interrupt;
mod patience;
mod serve;
mod supervise;

use clap::{Args, Subcommand};

use super::Outcome;

/// Run in the guest: the agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  podlink agent serve --listen 0.0.0.0:8765 --token-file /oem/agent_token.txt")]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    #[command(hide = true)]
    Drain(drain::DrainArgs),
    #[command(hide = true)]
    Hold(hold::HoldArgs),
    #[command(hide = true)]
    Interrupt(interrupt::InterruptArgs),
}

pub(super) fn run(args: AgentArgs) -> Outcome {
    match args.command {
        Command::Serve(args) => serve::run(*args),
        Command::Drain(args) => drain::run(args),
        Command::Hold(args) => hold::run(args),
        Command::Interrupt(args) => interrupt::run(args),
    }
}
