//! `podlink agent serve --supervise`: the parent's side.

use std::ffi::OsString;

use anyhow::Context as _;

use super::super::{Exit, Outcome};
use crate::guest::{self, LogSettings, Signals, SupervisorSettings};

/// What asks for a supervisor on the command line, and what it says to the agent instead.
const ASKS: &str = "--supervise";
const TELLS: &str = "--supervised";

/// Runs the supervisor of an agent with this process' own arguments.
pub(super) fn run(log: &LogSettings, tune: impl FnOnce(SupervisorSettings) -> SupervisorSettings) -> Outcome {
    // one log for both, so that it tells the whole story; who changed what is the agent's to say
    let guard = guest::start_log(&LogSettings { audit_file: None, ..log.clone() })?;
    // by its path and not by what this process was started from: what an update has put there is to run next
    let program = std::env::current_exe().context("it is not known where this program lies")?;
    let settings = SupervisorSettings {
        // without a file the log itself goes to stderr
        hear_stderr: log.file.is_some(),
        ..tune(SupervisorSettings::new(program, agents_args(std::env::args_os().skip(1))))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the supervisor")?;
    let code = runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        guest::supervise(settings, &mut signals).await
    });
    if let (Err(error), Some(_)) = (&code, &log.file) {
        tracing::error!("{error:#}");
    }
    drop(guard);
    Ok(Exit(code?))
}

/// The agent's arguments. clap takes no value that looks like a flag, so what looks like ours is.
fn agents_args(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    ours.map(|arg| if arg == ASKS { TELLS.into() } else { arg }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_given_all_but_the_request() {
        let ours = ["agent", "serve", "--supervise", "--log-file", "/a b/--supervise.log"];
        let agents = agents_args(ours.iter().map(OsString::from));
        assert_eq!(agents, ["agent", "serve", "--supervised", "--log-file", "/a b/--supervise.log"]);
    }
}
