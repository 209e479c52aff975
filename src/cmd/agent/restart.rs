//! `podlink agent restart`.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::{
    super::{Exit, Outcome, Printer},
    places::StateArgs,
};
use crate::guest::install::{self, Restarted};

/// Have the installed agent end and start again
///
/// It takes no new calls from then on, and ends once those that run have their answers. Inside a call of its own this
/// returns at once: the rest of the call has as long as `--drain` of the agent, 5 s, and its answer is not lost.
/// Elsewhere it waits for the new agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 0 once another agent answers, or, inside a call, once the restart is under way; with 10 when none has come in
time.

Examples:
  podlink agent restart
  podlink pod exec 'podlink agent restart'     from the host; `podlink pod restart --agent` waits as well")]
pub(super) struct RestartArgs {
    #[command(flatten)]
    state: StateArgs,

    /// Seconds to wait for the new agent
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(super) fn run(args: &RestartArgs) -> Outcome {
    let state = args.state.folder()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a thread")?;
    let restarted = runtime.block_on(install::restart(&state, Duration::from_secs(args.timeout)))?;
    let printer = Printer::new(false);
    Ok(match restarted {
        Restarted::Answers { agent_id, version, .. } => {
            printer.line(&format!("the agent has restarted: {agent_id}, version {version}, answers"));
            Exit::SUCCESS
        }
        Restarted::UnderWay { drain } => {
            let seconds = drain.as_secs_f64();
            printer
                .line(&format!("the agent restarts once its calls, this one too, have ended; they have {seconds} s"));
            Exit::SUCCESS
        }
        Restarted::NotBack { before } => {
            let waited = args.timeout;
            printer.note(&format!(
                "no other agent than {before} answers after {waited} s; `podlink agent status` names its log"
            ));
            Exit::WAIT_TIMED_OUT
        }
    })
}
