//! Which bundle an installation is of.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::record::Record;

/// What the guest was given when nothing else is said: the folder of this program, or where it was given before when
/// that is the installed one.
///
/// # Errors
/// When this program's own file is not known.
pub fn default_bundle(exe: &Path, state: &Path) -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("this program's own file is not known; name the --bundle")?;
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let is_installed = real(&us).is_some_and(|us| real(exe) == Some(us));
    if is_installed && let Some(record) = Record::load(state).ok().flatten() {
        return Ok(record.bundle);
    }
    Ok(us.parent().context("this program lies in no folder; name the --bundle")?.to_owned())
}
