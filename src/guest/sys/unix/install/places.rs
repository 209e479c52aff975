//! Where an installation's files lie when nothing else is said.

use std::path::PathBuf;

/// The executable's name.
pub(in crate::guest) const EXE_NAME: &str = "podlink";

/// A refusal to replace a file is meant for good.
pub(in crate::guest) const REPLACING_IS_RETRIED: bool = false;

/// The system's for root, the user's own otherwise.
pub(in crate::guest) fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/podlink".into());
    }
    Some(dirs::state_dir()?.join("podlink"))
}

/// Where programs go that no package brings.
pub(in crate::guest) fn default_program_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/usr/local/bin".into());
    }
    dirs::executable_dir()
}
