//! `podlink agent drain`: started by the agent alone.

use anyhow::Context as _;

use super::super::{Exit, Outcome};
use crate::guest;

/// Read and drop what processes write that have outlived their call
#[derive(Debug, clap::Args)]
pub(super) struct DrainArgs {}

pub(super) fn run(_args: DrainArgs) -> Outcome {
    guest::drain_loop().context("stdin is not the socket of an agent")?;
    Ok(Exit::SUCCESS)
}
