//! The installed executable, and the scripts that are run beside it.

use std::{
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// Bits of a mode that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Programs have no windows here.
pub(in crate::guest) const fn without_window(_command: &mut Command) {}

/// How a hook is run; `None` where the file is none.
pub(in crate::guest) fn hook_command(path: &Path) -> Option<Vec<String>> {
    // not by its own first line: the image that brought it may know no modes
    let is_script = path.extension().is_some_and(|extension| extension == "sh") && path.is_file();
    is_script.then(|| vec!["sh".to_owned(), path.to_string_lossy().into_owned()])
}

/// That it is a file which only root or we can have written.
pub(in crate::guest) fn check_trusted(path: &Path) -> anyhow::Result<()> {
    let meta = fs_err::symlink_metadata(path)?;
    ensure!(meta.is_file(), "it is no regular file");
    let us = rustix::process::geteuid().as_raw();
    ensure!([us, 0].contains(&meta.uid()), "it belongs to user {}, neither to root nor to user {us}", meta.uid());
    ensure!(meta.mode() & OTHERS_WRITE == 0, "others can write it (mode {:o})", meta.mode() & 0o7777);
    Ok(())
}

/// Lets everybody run it, and its owner alone write it.
pub(in crate::guest) fn make_executable(path: &Path) -> io::Result<()> {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// Makes the folder for the executable where it is missing.
pub(in crate::guest) fn create_program_dir(path: &Path) -> io::Result<()> {
    fs_err::create_dir_all(path)
}

/// Puts a file in the place of the executable, which may run: what runs keeps what it was started from.
pub(in crate::guest) fn replace_program(new: &Path, target: &Path) -> io::Result<()> {
    fs_err::rename(new, target)?;
    let folder = target.parent().unwrap_or(Path::new("/"));
    fs_err::File::open(folder)?.sync_all()
}

/// That nobody but its owner, who is root or us, can change the executable.
pub(in crate::guest) fn guard_program(exe: &Path) -> anyhow::Result<()> {
    let meta = fs_err::symlink_metadata(exe)?;
    if meta.mode() & OTHERS_WRITE != 0 {
        make_executable(exe)?;
    }
    check_trusted(exe).with_context(|| format!("{} is not safe to be started", exe.display()))
}

/// Removes the executable, even the one that runs; says what is left to be known.
pub(in crate::guest) fn remove_program(exe: &Path) -> anyhow::Result<Option<String>> {
    match fs_err::remove_file(exe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(None),
    }
}

/// Whether this process belongs to a call of an agent's.
pub(in crate::guest) fn is_in_a_call() -> bool {
    std::env::var_os(super::super::tree::MARK).is_some()
}
