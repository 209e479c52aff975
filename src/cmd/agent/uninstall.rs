//! `podlink agent uninstall`.

use anyhow::Context as _;
use clap::Args;

use super::{
    super::{Exit, Outcome, Printer},
    places::StateArgs,
};
use crate::guest::install;

/// Take the agent out of this guest again
#[derive(Debug, Args)]
#[command(after_help = "\
Undoes what `podlink agent install` has set: what starts the agent, the agent itself, the token, the exclusion from
scans, the firewall's rule, the program. Logs stay unless --purge is given; the folder it was installed from stays as
it is.

Examples:
  podlink agent uninstall
  podlink agent uninstall --purge      the logs too")]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    state: StateArgs,

    /// Remove the logs as well
    #[arg(long)]
    purge: bool,
}

pub(super) fn run(args: &UninstallArgs) -> Outcome {
    let state = args.state.folder()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a thread")?;
    let printer = Printer::new(false);
    let undone = runtime.block_on(install::uninstall(&state, args.purge, |undone| {
        let word = if undone.failed { "failed" } else { "undone" };
        let said = undone.said.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
        printer.line(&format!("{}: {word}{said}", undone.step));
    }));
    undone.map_err(anyhow::Error::from)?;
    Ok(Exit::SUCCESS)
}
