//! `podlink demo`.

use super::Outcome;

/// Do the main job on a temporary pod of this machine
#[derive(Debug, clap::Args)]
pub struct DemoArgs {}

pub fn run(_args: DemoArgs) -> Outcome {
    Ok(super::Exit::SUCCESS)
}
