//! `podlink pod …`: what is done with a pod that `setup` has made.

use super::Outcome;

/// Use a pod: start it, wait for it, run things in it
#[derive(Debug, clap::Args)]
pub struct PodArgs {}

impl PodArgs {
    /// Whether the chosen command was given `--json`.
    pub fn is_json(&self) -> bool {
        false
    }
}

pub fn run(_args: PodArgs) -> Outcome {
    Ok(super::Exit::SUCCESS)
}
