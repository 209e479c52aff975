//! `podlink agent …`: what runs in the guest.

mod drain;
mod serve;

use clap::{Args, Subcommand};

use super::Outcome;

/// Run in the guest: the agent
#[derive(Debug, Args)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    #[command(hide = true)]
    Drain(drain::DrainArgs),
}

pub fn run(args: AgentArgs) -> Outcome {
    match args.command {
        Command::Serve(args) => serve::run(args),
        Command::Drain(args) => drain::run(args),
    }
}
