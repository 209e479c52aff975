//! The installed executable, and the scripts that are run beside it.
//!
//! UNSAFETY: calls that take paths which end with a zero, and pointers to what they write, which live as long.
#![expect(unsafe_code, reason = "owners of files, and files that are removed later, have no safe form")]

use std::{io, os::windows::ffi::OsStrExt as _, path::Path, ptr};

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use windows_sys::Win32::{
    Foundation::LocalFree,
    Security::{
        Authorization::{GetNamedSecurityInfoW, SE_FILE_OBJECT},
        EqualSid, GetTokenInformation, IsWellKnownSid, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID,
        TOKEN_QUERY, TOKEN_USER, TokenUser, WinBuiltinAdministratorsSid, WinLocalSystemSid,
    },
    Storage::FileSystem::{MOVEFILE_DELAY_UNTIL_REBOOT, MoveFileExW},
    System::Threading::{CREATE_NO_WINDOW, GetCurrentProcess, OpenProcessToken},
};

use super::places::system_program;

/// The user who owns Windows' own files.
const TRUSTED_INSTALLER: &str = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";

/// Keeps a console from flashing up.
pub(in crate::guest) fn without_window(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW);
}

/// How a hook is run; `None` where the file is none.
pub(in crate::guest) fn hook_command(path: &Path) -> Option<Vec<String>> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let text = path.to_str().filter(|_| path.is_file())?.to_owned();
    match extension.as_str() {
        "cmd" => Some(vec![text]),
        "ps1" => {
            let program = system_program(r"WindowsPowerShell\v1.0\powershell.exe");
            let flags = ["-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"];
            let words = std::iter::once(program).chain(flags.map(str::to_owned)).chain([text]);
            Some(words.collect())
        }
        _ => None,
    }
}

/// That it is a file which belongs to us, to the administrators or to the system: in a folder where everybody may make
/// files, and below `C:\` that is the rule, others' own belong to them.
pub(in crate::guest) fn check_trusted(path: &Path) -> anyhow::Result<()> {
    let meta = fs_err::symlink_metadata(path)?;
    ensure!(meta.is_file(), "it is no regular file");
    ensure!(is_ours(path)?, "it belongs neither to this user nor to the administrators or the system");
    Ok(())
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// What the system has allocated for us; dropping it gives it back.
struct Allocated(PSECURITY_DESCRIPTOR);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: the system has allocated it, and it is freed once.
        unsafe { LocalFree(self.0) };
    }
}

fn is_ours(path: &Path) -> io::Result<bool> {
    let name = wide(path);
    let mut owner: PSID = ptr::null_mut();
    let mut descriptor: PSECURITY_DESCRIPTOR = ptr::null_mut();
    // SAFETY: the name ends with a zero; owner and descriptor are written on success, and the owner points into the
    // descriptor.
    let code = unsafe {
        GetNamedSecurityInfoW(
            name.as_ptr(),
            SE_FILE_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &raw mut owner,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut descriptor,
        )
    };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code.cast_signed()));
    }
    let _descriptor = Allocated(descriptor);
    let us = user()?;
    // SAFETY: the descriptor lives until the end of this function; the user's structure stands at its buffer's start.
    unsafe {
        let ours = (*us.as_ptr().cast::<TOKEN_USER>()).User.Sid;
        let is = |sid| IsWellKnownSid(owner, sid) != 0;
        Ok(EqualSid(owner, ours) != 0
            || is(WinLocalSystemSid)
            || is(WinBuiltinAdministratorsSid)
            || is_installer(owner))
    }
}

/// Whether it is Windows' own installer.
fn is_installer(owner: PSID) -> bool {
    use windows_sys::Win32::Security::Authorization::ConvertStringSidToSidW;
    let text: Vec<u16> = TRUSTED_INSTALLER.encode_utf16().chain([0]).collect();
    let mut sid: PSID = ptr::null_mut();
    // SAFETY: the text ends with a zero; the sid is written on success, compared and then given back.
    unsafe {
        if ConvertStringSidToSidW(text.as_ptr(), &raw mut sid) == 0 {
            return false;
        }
        let _sid = Allocated(sid);
        EqualSid(owner, sid) != 0
    }
}

/// The structure that names this process' user, in a buffer that is aligned for it.
fn user() -> io::Result<Vec<u64>> {
    use std::os::windows::io::{FromRawHandle as _, OwnedHandle};
    let mut buffer = vec![0_u64; 64];
    let bytes = u32::try_from(buffer.len() * 8).map_err(io::Error::other)?;
    let mut handle = ptr::null_mut();
    let mut needed = 0;
    // SAFETY: the token's handle is written on success and closed once; the buffer is as long as said.
    unsafe {
        if OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut handle) == 0 {
            return Err(io::Error::last_os_error());
        }
        let _token = OwnedHandle::from_raw_handle(handle);
        if GetTokenInformation(handle, TokenUser, buffer.as_mut_ptr().cast(), bytes, &raw mut needed) == 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(buffer)
}

/// Its name says that it can be run.
#[expect(clippy::unnecessary_wraps, reason = "its twin changes a mode")]
pub(in crate::guest) const fn make_executable(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes the folder for the executable where it is missing. Below Program Files only administrators can write by what
/// it inherits, below the user's own folder only the user; elsewhere it is made for us alone.
pub(in crate::guest) fn create_program_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let guarded = ["ProgramFiles", "LocalAppData"].iter().filter_map(std::env::var_os);
    if guarded.into_iter().any(|folder| path.starts_with(folder)) {
        return fs_err::create_dir_all(path);
    }
    crate::token::ensure_private_dir(path).map_err(io::Error::other)
}

/// Puts a file in the place of the executable. One that runs can be renamed and not replaced: it is put aside, and
/// removed when the next one comes.
pub(in crate::guest) fn replace_program(new: &Path, target: &Path) -> io::Result<()> {
    remove_put_aside(target);
    let Err(error) = fs_err::rename(new, target) else { return Ok(()) };
    if !target.exists() {
        return Err(error);
    }
    put_aside(target)?;
    fs_err::rename(new, target)
}

fn put_aside(target: &Path) -> io::Result<std::path::PathBuf> {
    let aside = (0..100).map(|number| aside_name(target, number)).find(|path| !path.exists());
    let aside = aside.ok_or_else(|| io::Error::other("there are a hundred old ones already"))?;
    fs_err::rename(target, &aside)?;
    Ok(aside)
}

fn aside_name(target: &Path, number: u32) -> std::path::PathBuf {
    target.with_extension(format!("old{number}"))
}

/// Those that run no more.
fn remove_put_aside(target: &Path) {
    for number in 0..100 {
        let aside = aside_name(target, number);
        if aside.exists() {
            drop(std::fs::remove_file(aside)); // it may still run
        }
    }
}

/// That the executable is ours or the administrators'. Who may write it is what its folder hands down.
pub(in crate::guest) fn guard_program(exe: &Path) -> anyhow::Result<()> {
    check_trusted(exe).with_context(|| format!("{} is not safe to be started", exe.display()))
}

/// Removes the executable, and its folder where that is empty then; says what is left to be known.
pub(in crate::guest) fn remove_program(exe: &Path) -> anyhow::Result<Option<String>> {
    remove_put_aside(exe);
    let mut left = None;
    match std::fs::remove_file(exe) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => {
            // this very program, say: it goes with the next start of Windows
            let aside = put_aside(exe)?;
            let name = wide(&aside);
            // SAFETY: the name ends with a zero; null stands for: remove it.
            let delayed = unsafe { MoveFileExW(name.as_ptr(), ptr::null(), MOVEFILE_DELAY_UNTIL_REBOOT) } != 0;
            left = Some(if delayed {
                format!("{} runs, and is removed when Windows starts again", aside.display())
            } else {
                format!("{} runs; remove it by hand once it has ended", aside.display())
            });
        }
    }
    if let Some(folder) = exe.parent() {
        drop(std::fs::remove_dir(folder)); // only where it is empty
    }
    Ok(left)
}

/// Whether this process belongs to a call of an agent's.
pub(in crate::guest) fn is_in_a_call() -> bool {
    std::env::var_os("PODLINK_CALL").is_some()
}
