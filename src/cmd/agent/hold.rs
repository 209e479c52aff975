//! `podlink agent hold`: what the process above a long call's program becomes, of itself.

use super::super::{Exit, Outcome};
use crate::guest;

/// Inherit and reap the orphans of a call, and end as its program ends
#[derive(Debug, clap::Args)]
pub(super) struct HoldArgs {
    /// The program's process number
    leader: i32,
}

pub(super) fn run(args: HoldArgs) -> Outcome {
    guest::hold_loop(args.leader);
    Ok(Exit::BROKEN)
}
