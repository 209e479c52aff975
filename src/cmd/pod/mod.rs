//! `podlink pod …`: what is done with a pod that `setup` has made.

mod down;
mod up;

use clap::Subcommand;

use super::Outcome;

/// Use a pod: start it, wait for it, run things in it
#[derive(Debug, clap::Args)]
pub(super) struct PodArgs {
    #[command(subcommand)]
    command: PodCommand,
}

#[derive(Debug, Subcommand)]
enum PodCommand {
    Up(up::UpArgs),
    Down(down::DownArgs),
}

impl PodArgs {
    /// Whether the chosen command was given `--json`.
    pub(super) fn is_json(&self) -> bool {
        match &self.command {
            PodCommand::Up(args) => args.json,
            PodCommand::Down(args) => args.json,
        }
    }
}

pub(super) fn run(args: PodArgs) -> Outcome {
    match args.command {
        PodCommand::Up(args) => up::run(args),
        PodCommand::Down(args) => down::run(args),
    }
}
