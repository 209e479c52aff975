//! `podlink agent hold`: what the process above a long call's program becomes, of itself.

use super::super::{Exit, Outcome};
use crate::guest;

/// Inherit and reap the orphans of a call, and end as its program ends
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct HoldArgs {
    /// The program's process number
    leader: i32,
}

#[expect(clippy::unnecessary_wraps, reason = "the form of every command")]
pub(super) fn run(args: HoldArgs) -> Outcome {
    guest::hold_loop(args.leader);
    Ok(Exit::BROKEN)
}
