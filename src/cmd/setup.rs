//! `podlink setup`.

use super::Outcome;

/// Write a pod's folder
#[derive(Debug, clap::Args)]
pub(super) struct SetupArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(_args: SetupArgs) -> Outcome {
    Ok(super::Exit::SUCCESS)
}
