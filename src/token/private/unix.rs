//! Files and folders that only their owner may read: made so from the first instant, checked when met.
//!
//! Implementation note: a file is created under a random name with mode 0600 and `O_EXCL`, written, synced and
//! renamed over its target, so that at no instant a wider, half-written or foreign file stands there. A kill in
//! between leaves the old file, and at worst a temporary one (`.tmp…`) that nobody else can read.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use super::super::TokenError;

/// Whose files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// This process' user alone: on the host.
    Us,
    /// This process' user and root: in the guest, where the image lays the file down.
    UsOrRoot,
}

impl Owners {
    fn check(self, path: &Path, owner: u32) -> Result<(), TokenError> {
        let us = rustix::process::geteuid().as_raw();
        if owner == us || (self == Self::UsOrRoot && owner == 0) {
            return Ok(());
        }
        Err(TokenError::ForeignOwner { path: path.to_owned(), owner: owner.to_string(), us: us.to_string() })
    }
}

/// Bits of a mode that let others than the owner in.
const OTHERS: u32 = 0o077;

/// Makes `path` (and what is missing above it) a folder with mode 0700, or checks that it is one of ours.
///
/// A wider mode of a folder that was there is tightened, with a warning in the log.
///
/// # Errors
/// When it is a symbolic link, not a folder, another user's, or cannot be made.
pub fn ensure_private_dir(path: &Path) -> Result<(), TokenError> {
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
        && !parent.exists()
    {
        ensure_private_dir(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            // a umask can have taken bits of the owner's away
            fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(named(&error, "make the folder", path)),
    }
    let meta = fs_err::symlink_metadata(path)?;
    if meta.file_type().is_symlink() {
        return Err(TokenError::Symlink { path: path.to_owned() });
    }
    if !meta.is_dir() {
        return Err(TokenError::WrongKind { path: path.to_owned(), expected: "folder" });
    }
    Owners::Us.check(path, meta.uid())?;
    let mode = meta.mode() & 0o7777;
    if mode & OTHERS != 0 {
        tracing::warn!(path = %path.display(), mode = %format_args!("{mode:o}"), "others could look into the folder; tightened to 700");
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Opens a file that holds a secret, having made sure of what was opened.
///
/// A wider mode is tightened, with a warning in the log; where that cannot be done (a read-only or FAT file
/// system) the warning says so.
///
/// # Errors
/// [`TokenError::Io`] of kind `NotFound` where there is none; else when it is a symbolic link, no regular file, or
/// another user's.
pub fn open_private(path: &Path, owners: Owners) -> Result<File, TokenError> {
    // NONBLOCK: opening a pipe that somebody planted must not hang; it does nothing to a regular file
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(TokenError::Symlink { path: path.to_owned() });
        }
        Err(error) => return Err(named(&error, "open", path)),
    };
    let meta = file.metadata().map_err(|error| named(&error, "look at", path))?;
    if !meta.is_file() {
        return Err(TokenError::WrongKind { path: path.to_owned(), expected: "regular file" });
    }
    owners.check(path, meta.uid())?;
    let mode = meta.mode() & 0o7777;
    if mode & OTHERS != 0 {
        match file.set_permissions(std::fs::Permissions::from_mode(0o600)) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), mode = %format_args!("{mode:o}"), "others could read the secret in this file; tightened to 600");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), mode = %format_args!("{mode:o}"), %error, "others can read the secret in this file, and its mode cannot be changed");
            }
        }
    }
    Ok(file)
}

/// Who besides its owner may get at the file or folder, as its mode says: nobody, if it is as it was made here.
///
/// # Errors
/// When it is a link, or cannot be asked.
pub fn others_with_access(path: &Path) -> Result<Vec<String>, TokenError> {
    let meta = fs_err::symlink_metadata(path)?;
    if meta.file_type().is_symlink() {
        return Err(TokenError::Symlink { path: path.to_owned() });
    }
    let others = [(0o070, "its group"), (0o007, "everyone")];
    Ok(others.iter().filter(|(bits, _)| meta.mode() & bits != 0).map(|(_, who)| (*who).to_owned()).collect())
}

/// Puts `content` at `path` with mode 0600, in the place of what was there.
///
/// # Errors
/// When the folder cannot be written, or what stands at `path` is a symbolic link or a folder.
pub fn replace_private(path: &Path, content: &[u8]) -> Result<(), TokenError> {
    if fs_err::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_symlink()) {
        return Err(TokenError::Symlink { path: path.to_owned() });
    }
    let temporary = write_temporary(path, content)?;
    temporary.persist(path).map_err(|error| named(&error.error, "replace", path))?;
    sync_folder_of(path)
}

/// Puts `content` at `path` with mode 0600 unless something is there already, and tells whether it did.
pub(in super::super) fn create_private(path: &Path, content: &[u8]) -> Result<bool, TokenError> {
    let temporary = write_temporary(path, content)?;
    match temporary.persist_noclobber(path) {
        Ok(_) => {
            sync_folder_of(path)?;
            Ok(true)
        }
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(named(&error.error, "create", path)),
    }
}

/// Whether the file shares its content with no other name.
pub(in super::super) fn is_its_own(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 1)
}

fn write_temporary(path: &Path, content: &[u8]) -> Result<tempfile::NamedTempFile, TokenError> {
    let folder = folder_of(path);
    // tempfile opens with O_EXCL and 0600
    let mut temporary = tempfile::Builder::new()
        .prefix(".tmp")
        .tempfile_in(folder)
        .map_err(|error| named(&error, "write into the folder", folder))?;
    temporary
        .write_all(content)
        .and_then(|()| temporary.as_file().sync_all())
        .map_err(|error| named(&error, "write", path))?;
    Ok(temporary)
}

/// A rename is on disk only once its folder is.
fn sync_folder_of(path: &Path) -> Result<(), TokenError> {
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| named(&error, "sync the folder", folder))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn named(error: &io::Error, what: &str, path: &Path) -> TokenError {
    TokenError::Io(io::Error::new(error.kind(), format!("could not {what} {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs_err::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_folder_is_made_private_and_kept_so() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("a/b");
        ensure_private_dir(&inner).unwrap();
        assert_eq!((mode(&top.path().join("a")), mode(&inner)), (0o700, 0o700));
        fs_err::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
        ensure_private_dir(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
    }

    #[test]
    fn links_and_files_are_no_folders() {
        let top = tempfile::tempdir().unwrap();
        let (real, link, file) = (top.path().join("real"), top.path().join("link"), top.path().join("file"));
        fs_err::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        fs_err::File::create(&file).unwrap();
        assert!(matches!(ensure_private_dir(&link), Err(TokenError::Symlink { .. })));
        assert!(matches!(ensure_private_dir(&file), Err(TokenError::WrongKind { .. })));
    }

    #[test]
    fn a_planted_link_is_neither_read_nor_written_through() {
        let top = tempfile::tempdir().unwrap();
        let (target, link) = (top.path().join("target"), top.path().join("link"));
        fs_err::File::create(&target).unwrap();
        symlink(&target, &link).unwrap();
        assert!(matches!(open_private(&link, Owners::Us), Err(TokenError::Symlink { .. })));
        assert!(matches!(replace_private(&link, b"x"), Err(TokenError::Symlink { .. })));
        assert!(!create_private(&link, b"x").unwrap());
        assert_eq!(fs_err::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_planted_pipe_does_not_hang() {
        let top = tempfile::tempdir().unwrap();
        let pipe = top.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(open_private(&pipe, Owners::Us), Err(TokenError::WrongKind { .. })));
    }

    #[test]
    fn a_foreign_file_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return; // only root can give a file away
        }
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("token");
        replace_private(&path, b"x").unwrap();
        std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        assert!(
            matches!(open_private(&path, Owners::Us), Err(TokenError::ForeignOwner { owner, .. }) if owner == "4242")
        );
    }

    #[test]
    fn replacing_leaves_nothing_else_behind() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("token");
        replace_private(&path, b"one").unwrap();
        replace_private(&path, b"two").unwrap();
        assert!(!create_private(&path, b"three").unwrap());
        assert_eq!(fs_err::read(&path).unwrap(), b"two");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs_err::read_dir(top.path()).unwrap().count(), 1);
    }
}
