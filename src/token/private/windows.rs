//! The Windows half: access control lists.

use std::{fs::File, path::Path};

use super::super::TokenError;

/// Whose files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// This process' user alone: on the host.
    Us,
    /// This process' user, SYSTEM and the administrators: in the guest, where the image lays the file down.
    UsOrRoot,
}

/// Makes `path` (and what is missing above it) a folder that only we may look into, or checks that it is one of ours.
///
/// # Errors
/// When it is a symbolic link, not a folder, another user's, or cannot be made.
pub fn ensure_private_dir(_path: &Path) -> Result<(), TokenError> {
    todo!()
}

/// Opens a file that holds a secret, having made sure of what was opened.
///
/// # Errors
/// [`TokenError::Io`] of kind `NotFound` where there is none; else when it is a symbolic link, no regular file, or
/// another user's.
pub fn open_private(_path: &Path, _owners: Owners) -> Result<File, TokenError> {
    todo!()
}

/// Puts `content` at `path`, for us alone, in the place of what was there.
///
/// # Errors
/// When the folder cannot be written, or what stands at `path` is a symbolic link or a folder.
pub fn replace_private(_path: &Path, _content: &[u8]) -> Result<(), TokenError> {
    todo!()
}

/// Puts `content` at `path`, for us alone, unless something is there already, and tells whether it did.
pub(in super::super) fn create_private(_path: &Path, _content: &[u8]) -> Result<bool, TokenError> {
    todo!()
}

/// Whether the file shares its content with no other name.
pub(in super::super) fn is_its_own(_file: &File) -> std::io::Result<bool> {
    todo!()
}
