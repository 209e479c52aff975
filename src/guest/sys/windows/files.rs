//! Where the agent's files lie, and how those are opened that others must not read.

use std::{
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
};

/// The token's file where none is named.
pub fn default_token_file() -> Option<PathBuf> {
    todo!()
}

/// The folder for the files of runs where none is named.
pub fn default_runs_dir() -> PathBuf {
    todo!()
}

/// Makes a file that only its owner can read or write; an error where something of the name is there.
pub(in crate::guest) fn create_private(_path: &Path) -> io::Result<File> {
    todo!()
}

/// Makes a folder that only its owner can look into; an error where something of the name is there.
pub(in crate::guest) fn create_private_dir(_path: &Path) -> io::Result<()> {
    todo!()
}

/// The folder that is always there: the top of the system's drive.
pub(in crate::guest) fn root_folder() -> PathBuf {
    let mut drive = std::env::var_os("SystemDrive").unwrap_or_else(|| "C:".into());
    drive.push("\\");
    drive.into()
}

/// Whether this account may make the folder its working directory.
pub(in crate::guest) fn may_enter(_folder: &Path) -> io::Result<()> {
    todo!()
}

/// Opens a file to append to, made private where it is missing.
pub(in crate::guest) fn open_private_append(_path: &Path) -> io::Result<File> {
    todo!()
}

/// What tells a file from any other, whatever its name is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct FileId(u64, u64);

/// The identity of an open or named file.
pub(in crate::guest) fn file_id(_meta: &Metadata) -> FileId {
    todo!()
}

/// Where the guest's installer writes its log.
pub fn default_install_log() -> Option<PathBuf> {
    todo!()
}
