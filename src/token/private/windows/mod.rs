//! The Windows half: files and folders that are made with an access control list of their own, checked when met.
//!
//! Implementation note: a file is created under a random name, with its list from the first instant, written, flushed
//! and renamed over its target, which keeps the list. So at no instant a wider, half-written or foreign file stands
//! there. A kill in between leaves the old file, and at worst a temporary one (`.tmp…`) that nobody else can read.

mod access;
mod identity;

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use windows_sys::Win32::{
    Foundation::{
        ERROR_ACCESS_DENIED, ERROR_ALREADY_EXISTS, ERROR_FILE_EXISTS, ERROR_SHARING_VIOLATION, GENERIC_READ,
        GENERIC_WRITE,
    },
    Storage::FileSystem::{
        CREATE_NEW, DELETE, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_NORMAL, FILE_ATTRIBUTE_REPARSE_POINT,
        FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_LIST_DIRECTORY, FILE_READ_ATTRIBUTES,
        FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH,
        OPEN_EXISTING, READ_CONTROL, SECURITY_IDENTIFICATION, SECURITY_SQOS_PRESENT, WRITE_DAC,
    },
};

use super::super::TokenError;
use access::Access;
pub(crate) use access::{Privacy, facts, is_on_disk, make_folder, open};
use identity::may_do_all;
pub(crate) use identity::{is_elevated, own_sid};

/// Whose files are trusted. Those of SYSTEM, the administrators and the installer of Windows always are: they can do all
/// in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// This process' user; and nothing from a volume that keeps no owners.
    Us,
    /// In the guest, where the image lays the file down: on whatever volume.
    UsOrRoot,
}

/// Who opens a file does not keep others from it.
const SHARED: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// The link itself and not what it leads to; and should it be somebody's pipe, that one cannot act in our name.
const WITH_CARE: u32 =
    FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;

/// A scanner that looks at a new file holds it for a moment.
const TRIES: u32 = 20;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(25);

impl Owners {
    /// Whether the owner is trusted; tells who else may get at the file.
    fn check(self, path: &Path, file: &File) -> Result<Vec<String>, TokenError> {
        let access = Access::of(file).map_err(|error| named(&error, "ask for the owner of", path))?;
        let us =
            own_sid().map_err(|error| named(&error, "ask for our own name, to compare with the owner of", path))?;
        let trusted = access.owner == us
            || may_do_all(&access.owner)
            || (self == Self::UsOrRoot && !access::volume_keeps_lists(file));
        if trusted {
            return Ok(access.others);
        }
        Err(TokenError::ForeignOwner { path: path.to_owned(), owner: access.owner, us: us.to_owned() })
    }
}

/// Opens what stands at the path, with the right to change its list where that can be had.
fn met(path: &Path, access: u32) -> io::Result<File> {
    let open = |more| open(path, access | READ_CONTROL | FILE_READ_ATTRIBUTES | more, SHARED, OPEN_EXISTING, WITH_CARE);
    match open(WRITE_DAC) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(0),
        opened => opened,
    }
}

/// What stands there, which must be no link, and a folder or a file as is wanted.
fn check_kind(path: &Path, file: &File, is_folder: bool) -> Result<(), TokenError> {
    let expected = if is_folder { "folder" } else { "regular file" };
    if !access::is_on_disk(file) {
        return Err(TokenError::WrongKind { path: path.to_owned(), expected });
    }
    let attributes = facts(file).map_err(|error| named(&error, "look at", path))?.dwFileAttributes;
    if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return Err(TokenError::Symlink { path: path.to_owned() });
    }
    if (attributes & FILE_ATTRIBUTE_DIRECTORY != 0) != is_folder {
        return Err(TokenError::WrongKind { path: path.to_owned(), expected });
    }
    Ok(())
}

/// Makes `path` (and what is missing above it) a folder that only we may look into, or checks that it is one of ours.
///
/// A wider list of a folder that was there is tightened, with a warning in the log.
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
    let made = match make_folder(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(named(&error, "make the folder", path)),
    };
    let folder = met(path, FILE_LIST_DIRECTORY).map_err(|error| named(&error, "open the folder", path))?;
    check_kind(path, &folder, true)?;
    let others = Owners::Us.check(path, &folder)?;
    if others.is_empty() {
        return Ok(());
    }
    match access::tighten(&folder, true) {
        // a system may change the list of what is made, and then it is no surprise
        Ok(()) if made => {}
        Ok(()) => {
            tracing::warn!(path = %path.display(), ?others, "others could look into the folder; taken from them");
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), ?others, %error, "others can look into the folder, and that cannot be taken from them");
        }
    }
    Ok(())
}

/// Opens a file that holds a secret, having made sure of what was opened.
///
/// A wider list is tightened, with a warning in the log; where that cannot be done (a read-only or FAT file
/// system) the warning says so.
///
/// # Errors
/// [`TokenError::Io`] of kind `NotFound` where there is none; else when it is a symbolic link, no regular file, or
/// another user's.
pub fn open_private(path: &Path, owners: Owners) -> Result<File, TokenError> {
    let file = met(path, GENERIC_READ).map_err(|error| named(&error, "open", path))?;
    check_kind(path, &file, false)?;
    let others = owners.check(path, &file)?;
    if !others.is_empty() {
        match access::tighten(&file, false) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), ?others, "others could read the secret in this file; taken from them");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), ?others, %error, "others can read the secret in this file, and that cannot be taken from them");
            }
        }
    }
    Ok(file)
}

/// Who besides this account and those who can do all in any case may get at the file or folder: nobody, if it is as it
/// was made here.
///
/// # Errors
/// When it is a link, or cannot be asked.
pub fn others_with_access(path: &Path) -> Result<Vec<String>, TokenError> {
    let file = open(path, READ_CONTROL | FILE_READ_ATTRIBUTES, SHARED, OPEN_EXISTING, WITH_CARE)
        .map_err(|error| named(&error, "open", path))?;
    let facts = facts(&file).map_err(|error| named(&error, "look at", path))?;
    if facts.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return Err(TokenError::Symlink { path: path.to_owned() });
    }
    Ok(Access::of(&file).map_err(|error| named(&error, "ask for the access list of", path))?.others)
}

/// Puts `content` at `path`, for us alone, in the place of what was there.
///
/// # Errors
/// When the folder cannot be written, or what stands at `path` is a symbolic link or a folder.
pub fn replace_private(path: &Path, content: &[u8]) -> Result<(), TokenError> {
    match met(path, 0) {
        Ok(file) => check_kind(path, &file, false)?,
        // what may not even be looked at is left to the renaming to refuse
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
        Err(error) => return Err(named(&error, "look at", path)),
    }
    let temporary = Temporary::write(path, content)?;
    temporary.rename(path, MOVEFILE_REPLACE_EXISTING).map_err(|error| named(&error, "replace", path))
}

/// Puts `content` at `path`, for us alone, unless something is there already, and tells whether it did.
pub(in super::super) fn create_private(path: &Path, content: &[u8]) -> Result<bool, TokenError> {
    let temporary = Temporary::write(path, content)?;
    match temporary.rename(path, 0) {
        Ok(()) => Ok(true),
        Err(error) if is_there_already(&error) => Ok(false),
        Err(error) => Err(named(&error, "create", path)),
    }
}

/// Takes an open file away from others, where it lies on a disk and they can get at it.
///
/// # Errors
/// When that cannot be done.
pub(crate) fn tighten(file: &File) -> io::Result<()> {
    if !access::is_on_disk(file) || Access::of(file)?.others.is_empty() {
        return Ok(());
    }
    access::tighten(file, false)
}

fn is_there_already(error: &io::Error) -> bool {
    is_code(error, &[ERROR_ALREADY_EXISTS, ERROR_FILE_EXISTS])
}

fn is_code(error: &io::Error, codes: &[u32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code.cast_unsigned()))
}

/// Whether the file shares its content with no other name.
pub(in super::super) fn is_its_own(file: &File) -> io::Result<bool> {
    Ok(facts(file)?.nNumberOfLinks == 1)
}

/// A file that is gone unless it gets another name.
struct Temporary {
    path: PathBuf,
    is_kept: bool,
}

impl Temporary {
    /// Makes it in the folder of `target`.
    fn write(target: &Path, content: &[u8]) -> Result<Self, TokenError> {
        let folder = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = folder.join(format!(".tmp{}", hex::encode(super::super::random_bytes::<8>()?)));
        let mut file = open(&path, GENERIC_READ | GENERIC_WRITE | DELETE, SHARED, CREATE_NEW, FILE_ATTRIBUTE_NORMAL)
            .map_err(|error| named(&error, "write into the folder", folder))?;
        let temporary = Self { path, is_kept: false };
        let others = Access::of(&file).map_err(|error| named(&error, "ask for the access list of", target))?.others;
        if !others.is_empty()
            && let Err(error) = access::tighten(&file, false)
        {
            tracing::warn!(path = %target.display(), ?others, %error, "others can read the file, and that cannot be taken from them");
        }
        file.write_all(content).and_then(|()| file.sync_all()).map_err(|error| named(&error, "write", target))?;
        Ok(temporary)
    }

    fn rename(mut self, target: &Path, flags: u32) -> io::Result<()> {
        for _ in 1..TRIES {
            match access::rename(&self.path, target, flags | MOVEFILE_WRITE_THROUGH) {
                Err(error) if is_code(&error, &[ERROR_SHARING_VIOLATION, ERROR_ACCESS_DENIED]) => {
                    std::thread::sleep(PAUSE);
                }
                renamed => {
                    self.is_kept = renamed.is_ok();
                    return renamed;
                }
            }
        }
        access::rename(&self.path, target, flags | MOVEFILE_WRITE_THROUGH)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn named(error: &io::Error, what: &str, path: &Path) -> TokenError {
    TokenError::Io(io::Error::new(error.kind(), format!("could not {what} {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the system keeps lists as they are set: Wine keeps what Unix modes can say of them.
    fn keeps_lists() -> bool {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("wide");
        fs_err::write(&path, "x").unwrap();
        let mut wide = std::process::Command::new("icacls");
        wide.arg(&path).args(["/grant", "*S-1-1-0:R"]);
        wide.output().is_ok_and(|done| done.status.success())
            && others_with_access(&path).is_ok_and(|others| others.contains(&"S-1-1-0".to_owned()))
    }

    #[test]
    fn what_is_made_is_ours_alone() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("a").join("b");
        ensure_private_dir(&inner).unwrap();
        ensure_private_dir(&inner).unwrap();
        let file = inner.join("token");
        replace_private(&file, b"one").unwrap();
        for path in [&top.path().join("a"), &inner, &file] {
            assert_eq!(others_with_access(path).unwrap(), [""; 0], "{}", path.display());
            let opened = met(path, FILE_READ_ATTRIBUTES).unwrap();
            let owner = Access::of(&opened).unwrap().owner;
            assert!(owner == own_sid().unwrap() || may_do_all(&owner), "{owner}");
        }
    }

    #[test]
    fn a_wide_file_is_taken_from_others() {
        if !keeps_lists() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("token");
        fs_err::write(&path, "secret").unwrap();
        let mut wide = std::process::Command::new("icacls");
        wide.arg(&path).args(["/grant", "*S-1-1-0:R"]);
        assert!(wide.output().unwrap().status.success());
        drop(open_private(&path, Owners::Us).unwrap());
        assert_eq!(others_with_access(&path).unwrap(), [""; 0]);
    }

    #[test]
    fn folders_files_and_pipes_are_told_apart() {
        let top = tempfile::tempdir().unwrap();
        let (folder, file) = (top.path().join("folder"), top.path().join("file"));
        std::fs::create_dir(&folder).unwrap();
        fs_err::write(&file, "x").unwrap();
        assert!(matches!(ensure_private_dir(&file), Err(TokenError::WrongKind { .. })));
        assert!(matches!(open_private(&folder, Owners::Us), Err(TokenError::WrongKind { .. })));
        assert!(matches!(replace_private(&folder, b"x"), Err(TokenError::WrongKind { .. })));
        assert!(open_private(Path::new("NUL"), Owners::Us).is_err());
        let missing = open_private(&top.path().join("none"), Owners::Us);
        assert!(matches!(missing, Err(TokenError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_planted_link_is_neither_read_nor_written_through() {
        let top = tempfile::tempdir().unwrap();
        let (target, link) = (top.path().join("target"), top.path().join("link"));
        fs_err::write(&target, "").unwrap();
        // not everybody may make one, and Wine makes none though it says so
        if std::os::windows::fs::symlink_file(&target, &link).is_err() || std::fs::symlink_metadata(&link).is_err() {
            return;
        }
        assert!(matches!(open_private(&link, Owners::Us), Err(TokenError::Symlink { .. })));
        assert!(matches!(replace_private(&link, b"x"), Err(TokenError::Symlink { .. })));
        assert!(!create_private(&link, b"x").unwrap());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn replacing_leaves_nothing_else_behind() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("token");
        replace_private(&path, b"one").unwrap();
        replace_private(&path, b"two").unwrap();
        assert!(!create_private(&path, b"three").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert!(is_its_own(&open_private(&path, Owners::Us).unwrap()).unwrap());
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 1);
    }

    #[test]
    fn long_paths_are_taken() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("x".repeat(120)).join("y".repeat(120));
        ensure_private_dir(&folder).unwrap();
        replace_private(&folder.join("token"), b"x").unwrap();
        drop(open_private(&folder.join("token"), Owners::Us).unwrap());
    }
}
