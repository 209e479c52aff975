//! The bundle's own hooks: which there are, and whether one may be run.

use std::{
    io::{self, ErrorKind, Read as _},
    path::Path,
};

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

use super::{super::sys, record::Hook};

/// More than a script ever takes.
const MAX_BYTES: u64 = 64 << 20;

/// The hooks in this folder, in the order of their names; none where there is no such folder.
///
/// # Errors
/// When the folder or a hook cannot be read, or is not to be trusted.
pub(super) fn find(folder: &Path) -> anyhow::Result<Vec<Hook>> {
    let entries = match fs_err::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let path = folder.join(&name);
        if sys::hook_command(&path).is_none() {
            continue; // what hooks bring along
        }
        names.push(name.into_string().map_err(|name| anyhow::anyhow!("a hook's name is no text: {}", name.display()))?);
    }
    // Windows tells no cases apart, and so their order is the same there and here
    names.sort_by_key(|name| (name.to_lowercase(), name.clone()));
    names.into_iter().map(|name| Ok(Hook { sha256: digest(&folder.join(&name))?, name, begun: 0 })).collect()
}

/// That the hook is what it was when the installation began, and nobody else's.
///
/// # Errors
/// When it is not.
pub(super) fn check(folder: &Path, hook: &Hook) -> anyhow::Result<()> {
    let is_known = digest(&folder.join(&hook.name))? == hook.sha256;
    ensure!(is_known, "it has changed since the installation began; run `podlink agent install` again");
    Ok(())
}

/// Of its content, having made sure that none but its owner, who is us or the system, can have written it: a hook runs
/// with the rights of whoever installs.
fn digest(path: &Path) -> anyhow::Result<String> {
    sys::check_trusted(path).with_context(|| format!("{} is not run", path.display()))?;
    let mut hash = Sha256::new();
    let mut file = fs_err::File::open(path)?.take(MAX_BYTES);
    let mut chunk = vec![0; 64 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex::encode(hash.finalize())),
            Ok(count) => hash.update(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
