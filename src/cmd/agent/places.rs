//! What `agent install`, `uninstall`, `status` and `serve` say alike.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::{guest::install::Places, protocol::RunMode};

/// Where the installation's state lies.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// Folder for the installation's state and the logs
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
}

impl StateArgs {
    /// The one that was named, or this account's.
    pub(super) fn folder(&self) -> anyhow::Result<PathBuf> {
        match &self.state_dir {
            Some(folder) => std::path::absolute(folder).with_context(|| format!("{} is no path", folder.display())),
            None => Places::default_state().context("no home folder is known; name the --state-dir"),
        }
    }
}

/// What starts the agent.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum ModeArg {
    /// The log-on of this user
    Session,
    /// The system, before any log-on; takes its administrator's rights
    Service,
    /// Nothing but you
    Manual,
}

impl From<ModeArg> for RunMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Session => Self::Session,
            ModeArg::Service => Self::Service,
            ModeArg::Manual => Self::Manual,
        }
    }
}
