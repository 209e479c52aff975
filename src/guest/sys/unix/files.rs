//! Where the agent's files lie, and how those are opened that others must not read.

use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// The token's file where none is named: the system's for root, the user's own otherwise.
pub fn default_token_file() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/etc/podlink/agent_token.txt".into());
    }
    Some(dirs::config_dir()?.join("podlink").join("agent_token.txt"))
}

/// The folder for the files of runs where none is named: the same for all agents of this account, so that each finds
/// what a killed one left.
///
/// In memory where the system has such a place; else in the temporary folder, under a name of this account's. One
/// folder and not two: whose it is and who may look into it is checked of the last one, and in a temporary folder
/// anybody could have made the one before.
pub fn default_runs_dir() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() && Path::new("/run").is_dir() {
        return "/run/podlink-runs".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() && folder.is_dir() => folder.join("podlink-runs"),
        _ => std::env::temp_dir().join(format!("podlink-runs-{}", user.as_raw())),
    }
}

/// Makes a file that only its owner can read or write; an error where something of the name is there.
pub(in crate::guest) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes a folder that only its owner can look into; an error where something of the name is there.
pub(in crate::guest) fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Whether a file or folder could not be removed or renamed because somebody has it open: never here.
pub(in crate::guest) const fn is_held_open(_error: &io::Error) -> bool {
    false
}

/// The folder that is always there.
pub(in crate::guest) fn root_folder() -> PathBuf {
    PathBuf::from("/")
}

/// Whether this account may make the folder its working directory.
pub(in crate::guest) fn may_enter(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(folder, rustix::fs::Access::EXEC_OK)?)
}

/// Opens a file to append to, made with mode 0600 where it is missing; a wider mode of a regular file is tightened.
pub(in crate::guest) fn open_private_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// What tells a file from any other, whatever its name is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct FileId(u64, u64);

/// The identity of an open file.
pub(in crate::guest) fn file_id(file: &File) -> io::Result<FileId> {
    let meta = file.metadata()?;
    Ok(FileId(meta.dev(), meta.ino()))
}

/// The identity of the file that has this name at this moment.
pub(in crate::guest) fn file_id_at(path: &Path) -> io::Result<FileId> {
    let meta = std::fs::metadata(path)?;
    Ok(FileId(meta.dev(), meta.ino()))
}

/// Takes the file's lock, which keeps nobody from reading it.
pub(in crate::guest) fn try_lock(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

/// Lets go of it.
pub(in crate::guest) fn unlock(file: &File) -> io::Result<()> {
    file.unlock()
}

/// Cuts the end off a file that was opened to append to.
pub(in crate::guest) fn truncate(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)
}

/// Where the guest's installer writes its log; none where no image installs by one.
pub const fn default_install_log() -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_reads_it() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        fs_err::write(&path, "old").unwrap();
        fs_err::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for path in [path, top.path().join("new")] {
            let file = open_private_append(&path).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        }
        assert_eq!(fs_err::read(top.path().join("log")).unwrap(), b"old");
    }
}
