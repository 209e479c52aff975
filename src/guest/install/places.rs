//! Where the files of an installation lie.

use std::path::{Path, PathBuf};

use super::super::sys;

/// The folders and files that an installation is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// What the guest was given: the token's copy and the hooks; need not be there.
    pub bundle: PathBuf,
    /// The executable that is installed.
    pub exe: PathBuf,
    /// The folder of the state.
    pub state: PathBuf,
    /// The agent's own copy of the token.
    pub token_file: PathBuf,
    /// Before the system's own folders, for tests and for images that are made elsewhere; `None` is the system itself.
    pub root: Option<PathBuf>,
}

impl Places {
    /// Where the state lies when nothing else is said; `None` without a home folder.
    pub fn default_state() -> Option<PathBuf> {
        sys::default_state_dir()
    }

    /// Where the executable goes when nothing else is said; `None` without a home folder.
    pub fn default_exe() -> Option<PathBuf> {
        sys::default_program_dir().map(|folder| folder.join(sys::EXE_NAME))
    }

    /// The executable in this folder.
    pub fn exe_in(folder: &Path) -> PathBuf {
        folder.join(sys::EXE_NAME)
    }

    /// The token's copy in the bundle.
    pub fn staged_token(&self) -> PathBuf {
        self.bundle.join(crate::token::STAGED_NAME)
    }

    /// The bundle's own hooks.
    pub fn hooks(&self) -> PathBuf {
        self.bundle.join("hooks")
    }
}

/// The state's record.
pub(super) fn record_file(state: &Path) -> PathBuf {
    state.join("install.json")
}

/// The gate.
pub(super) fn done_file(state: &Path) -> PathBuf {
    state.join("install.done")
}

/// What whoever works holds locked.
pub(super) fn lock_file(state: &Path) -> PathBuf {
    state.join("install.lock")
}

/// What became of each step.
pub(super) fn log_file(state: &Path) -> PathBuf {
    state.join("install.log")
}

/// Which agent runs.
pub(super) fn agent_file(state: &Path) -> PathBuf {
    state.join("agent.json")
}

/// The agent's log.
pub(super) fn agent_log(state: &Path) -> PathBuf {
    state.join("agent.log")
}

/// The folder for what hooks write.
pub(super) fn hook_logs(state: &Path) -> PathBuf {
    state.join("hooks")
}

/// The folder for the files of hooks' runs.
pub(super) fn runs(state: &Path) -> PathBuf {
    state.join("runs")
}
