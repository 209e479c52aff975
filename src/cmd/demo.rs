//! `podlink demo`.

use super::Outcome;

/// Do the main job on a temporary pod of this machine
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}

pub(super) fn run(_args: DemoArgs) -> Outcome {
    Ok(super::Exit::SUCCESS)
}
