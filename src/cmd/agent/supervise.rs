//! `podlink agent serve --supervise`: the parent's side.

use std::ffi::OsString;

use anyhow::Context as _;

use super::super::{Exit, Outcome};
use crate::guest::{self, Signals, StopRequests, SupervisorSettings};

/// What asks for a supervisor on the command line, and what it says to the agent instead.
const SUPERVISE: (&str, &[&str]) = ("--supervise", &["--supervised"]);

/// The supervisor is the service, the agent is told that there is one.
const SERVICE: (&str, &[&str]) = ("--service", &["--run-mode", "service"]);

/// Runs the supervisor of an agent with this process' own arguments.
pub(super) fn run(
    logs_to_file: bool,
    requests: Option<StopRequests>,
    tune: impl FnOnce(SupervisorSettings) -> SupervisorSettings,
) -> Outcome {
    // by its path and not by what this process was started from: what an update has put there is to run next
    let program = std::env::current_exe().context("it is not known where this program lies")?;
    let settings = SupervisorSettings {
        // without a file the log itself goes to stderr
        hear_stderr: logs_to_file,
        ..tune(SupervisorSettings::new(program, agents_args(std::env::args_os().skip(1))))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the supervisor")?;
    let code = runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?.and(requests);
        guest::supervise(settings, &mut signals).await
    });
    if let (Err(error), true) = (&code, logs_to_file) {
        tracing::error!("{error:#}");
    }
    Ok(Exit(code?))
}

/// The agent's arguments. clap takes no value that looks like a flag, so what looks like ours is.
fn agents_args(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let others = |arg: OsString| match [SUPERVISE, SERVICE].into_iter().find(|(own, _)| arg == *own) {
        Some((_, others)) => others.iter().map(OsString::from).collect(),
        None => vec![arg],
    };
    ours.flat_map(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_given_all_but_the_request() {
        let ours = ["agent", "serve", "--supervise", "--log-file", "/a b/--supervise.log", "--service"];
        let agents = agents_args(ours.iter().map(OsString::from));
        let expected =
            ["agent", "serve", "--supervised", "--log-file", "/a b/--supervise.log", "--run-mode", "service"];
        assert_eq!(agents, expected);
    }
}
