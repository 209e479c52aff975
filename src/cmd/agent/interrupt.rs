//! `podlink agent interrupt`: started by the agent alone.

use anyhow::Context as _;

use super::super::{Exit, Outcome};
use crate::guest;

/// Send what Ctrl-C sends to a program of a call
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct InterruptArgs {
    /// The program's process number
    pid: u32,
}

pub(super) fn run(args: InterruptArgs) -> Outcome {
    guest::interrupt_process(args.pid).context("the program cannot be interrupted")?;
    Ok(Exit::SUCCESS)
}
