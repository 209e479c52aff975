//! Where the agent's files lie, and how those are opened that others must not read.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; a
//! handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "locks beyond a file's end and known folders have no safe form")]

use std::{
    ffi::OsString,
    fs::{File, TryLockError},
    io,
    os::windows::{
        ffi::OsStringExt as _,
        io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    },
    path::{Path, PathBuf},
    ptr::null_mut,
};

use windows_sys::Win32::{
    Foundation::{
        ERROR_ACCESS_DENIED, ERROR_DELETE_PENDING, ERROR_DIR_NOT_EMPTY, ERROR_IO_PENDING, ERROR_LOCK_VIOLATION,
        ERROR_SHARING_VIOLATION, GENERIC_READ, GENERIC_WRITE, INVALID_HANDLE_VALUE,
    },
    Storage::FileSystem::{
        CREATE_NEW, FILE_APPEND_DATA, FILE_ATTRIBUTE_NORMAL, FILE_FLAG_BACKUP_SEMANTICS, FILE_READ_ATTRIBUTES,
        FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TRAVERSE, LOCKFILE_EXCLUSIVE_LOCK,
        LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, OPEN_ALWAYS, OPEN_EXISTING, ReOpenFile, SYNCHRONIZE, UnlockFileEx,
        WRITE_DAC,
    },
    System::{
        Com::CoTaskMemFree,
        IO::{OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0},
    },
    UI::Shell::{FOLDERID_ProgramData, KF_FLAG_DEFAULT, SHGetKnownFolderPath},
};

use crate::token;

/// Who opens a file does not keep others from reading, renaming or removing it.
const SHARED: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// The byte that is locked: far beyond every file's end, for here a lock keeps others from reading what it covers.
const LOCKED_AT: u64 = 1 << 62;

/// The agent's own folder: the machine's where it has the machine's rights, the user's own otherwise.
fn own_folder() -> Option<PathBuf> {
    let above = if token::is_elevated() { program_data()? } else { dirs::data_local_dir()? };
    Some(above.join("podlink"))
}

/// The folder for what belongs to all users. Not out of the environment, which others may have set.
fn program_data() -> Option<PathBuf> {
    let mut text = null_mut();
    let (folder, flags) = (FOLDERID_ProgramData, KF_FLAG_DEFAULT.cast_unsigned());
    // SAFETY: the name is one of a folder's, and the place one for a pointer.
    let code = unsafe { SHGetKnownFolderPath(&raw const folder, flags, null_mut(), &raw mut text) };
    let mut path = None;
    if code >= 0 && !text.is_null() {
        // SAFETY: the text ends with a zero.
        let len = (0..).take_while(|at| unsafe { *text.add(*at) } != 0).count();
        // SAFETY: so many characters are before it.
        path = Some(OsString::from_wide(unsafe { std::slice::from_raw_parts(text, len) }).into());
    }
    // SAFETY: the call asks for this whatever came of it, and nothing may also be given.
    unsafe { CoTaskMemFree(text.cast()) };
    path
}

/// The token's file where none is named: below `ProgramData` with the machine's rights, else in the user's own folder.
pub fn default_token_file() -> Option<PathBuf> {
    Some(own_folder()?.join("agent_token.txt"))
}

/// The folder for the files of runs where none is named: the same for all agents of this account, so that each finds
/// what a killed one left.
pub fn default_runs_dir() -> PathBuf {
    own_folder().unwrap_or_else(|| std::env::temp_dir().join("podlink")).join("runs")
}

/// Makes a file that only its owner can read or write; an error where something of the name is there.
pub(in crate::guest) fn create_private(path: &Path) -> io::Result<File> {
    token::open(path, GENERIC_READ | GENERIC_WRITE, SHARED, CREATE_NEW, FILE_ATTRIBUTE_NORMAL)
}

/// Makes a folder that only its owner can look into; an error where something of the name is there.
pub(in crate::guest) fn create_private_dir(path: &Path) -> io::Result<()> {
    token::make_folder(path)
}

/// Whether a file or folder could not be removed or renamed because somebody has it open, or may have: a file that is on
/// its way out is said to be forbidden, and its folder not to be empty.
pub(in crate::guest) fn is_held_open(error: &io::Error) -> bool {
    let codes = [ERROR_SHARING_VIOLATION, ERROR_ACCESS_DENIED, ERROR_DIR_NOT_EMPTY, ERROR_DELETE_PENDING];
    error.raw_os_error().is_some_and(|code| codes.contains(&code.cast_unsigned()))
}

/// The folder that is always there: the top of the system's drive.
pub(in crate::guest) fn root_folder() -> PathBuf {
    let mut drive = std::env::var_os("SystemDrive").unwrap_or_else(|| "C:".into());
    drive.push("\\");
    drive.into()
}

/// Whether this account may make the folder its working directory.
pub(in crate::guest) fn may_enter(folder: &Path) -> io::Result<()> {
    token::open(folder, FILE_TRAVERSE | SYNCHRONIZE, SHARED, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS).map(drop)
}

/// Opens a file to append to, made private where it is missing; a wider list of a regular file is tightened.
pub(in crate::guest) fn open_private_append(path: &Path) -> io::Result<File> {
    // reading as well: what may only be appended to cannot be locked
    let open =
        |more| token::open(path, GENERIC_READ | FILE_APPEND_DATA | more, SHARED, OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL);
    let file = match open(WRITE_DAC) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return open(0),
        opened => opened?,
    };
    token::tighten(&file)?;
    Ok(file)
}

/// What tells a file from any other, whatever its name is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct FileId(u64, u64);

/// The identity of an open file.
pub(in crate::guest) fn file_id(file: &File) -> io::Result<FileId> {
    if !token::is_on_disk(file) {
        return Ok(FileId(0, 0)); // a device has no number
    }
    let facts = token::facts(file)?;
    let number = u64::from(facts.nFileIndexHigh) << 32 | u64::from(facts.nFileIndexLow);
    Ok(FileId(facts.dwVolumeSerialNumber.into(), number))
}

/// The identity of the file that has this name at this moment.
pub(in crate::guest) fn file_id_at(path: &Path) -> io::Result<FileId> {
    file_id(&token::open(path, FILE_READ_ATTRIBUTES, SHARED, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS)?)
}

fn locked_at() -> OVERLAPPED {
    let at = OVERLAPPED_0_0 { Offset: LOCKED_AT as u32, OffsetHigh: (LOCKED_AT >> 32) as u32 };
    OVERLAPPED { Anonymous: OVERLAPPED_0 { Anonymous: at }, ..OVERLAPPED::default() }
}

/// Takes the file's lock, which keeps nobody from reading it.
pub(in crate::guest) fn try_lock(file: &File) -> Result<(), TryLockError> {
    let mut at = locked_at();
    let how = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the handle is open across the call, which ends at once for one that was opened to wait.
    if unsafe { LockFileEx(file.as_raw_handle(), how, 0, 1, 0, &raw mut at) } != 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error().map(i32::cast_unsigned) {
        Some(ERROR_LOCK_VIOLATION | ERROR_IO_PENDING) => Err(TryLockError::WouldBlock),
        _ => Err(TryLockError::Error(error)),
    }
}

/// Lets go of it.
pub(in crate::guest) fn unlock(file: &File) -> io::Result<()> {
    let mut at = locked_at();
    // SAFETY: the handle is open across the call.
    if unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut at) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Cuts the end off a file that was opened to append to.
pub(in crate::guest) fn truncate(file: &File, len: u64) -> io::Result<()> {
    // the right to append is not the right to do this
    // SAFETY: the handle is open across the call.
    let handle = unsafe { ReOpenFile(file.as_raw_handle(), GENERIC_WRITE, SHARED, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    File::from(unsafe { OwnedHandle::from_raw_handle(handle) }).set_len(len)
}

/// Where the guest's installer writes its log; none where no image installs by one.
pub fn default_install_log() -> Option<PathBuf> {
    let drive = std::env::var_os("SystemDrive").unwrap_or_else(|| "C:".into());
    let bundle = Path::new(&drive).join(r"\OEM");
    bundle.is_dir().then(|| bundle.join("podlink-install.log"))
}
