//! Handles that are closed when they are dropped, and text as Win32 takes it.
//!
//! UNSAFETY: a raw handle becomes an owned one only here and where a call has just made it; each call gets pointers to
//! values that live for as long as it runs.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    ffi::OsStr,
    io,
    os::windows::{
        ffi::OsStrExt as _,
        io::{AsRawHandle as _, BorrowedHandle, FromRawHandle as _, OwnedHandle},
    },
    ptr,
};

use windows_sys::Win32::{
    Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE},
    System::Threading::GetCurrentProcess,
};

/// Takes over what a call that makes a handle has returned: nothing and -1 are its error.
///
/// # Safety
/// The handle is open, or one of those two, and nobody else closes it.
pub(super) unsafe fn owned(made: HANDLE) -> io::Result<OwnedHandle> {
    if made.is_null() || made == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: promised by whoever calls this.
    Ok(unsafe { OwnedHandle::from_raw_handle(made) })
}

/// What a call says that returns whether it worked.
pub(super) fn worked(result: windows_sys::core::BOOL) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Another handle to the same thing, with all that the first one may do; no child inherits it.
pub(super) fn duplicate(handle: BorrowedHandle<'_>) -> io::Result<OwnedHandle> {
    handle.try_clone_to_owned()
}

/// Opens the same thing in another process too: the number by which it is known there. With `access` 0 it may do what
/// ours may.
pub(super) fn give_to(process: BorrowedHandle<'_>, handle: BorrowedHandle<'_>, access: u32) -> io::Result<u64> {
    let mut given: HANDLE = ptr::null_mut();
    let options = if access == 0 { DUPLICATE_SAME_ACCESS } else { 0 };
    // SAFETY: both handles are open, and `given` lives as long as the call.
    worked(unsafe {
        DuplicateHandle(
            GetCurrentProcess(),
            handle.as_raw_handle(),
            process.as_raw_handle(),
            &raw mut given,
            access,
            0,
            options,
        )
    })?;
    Ok(given as usize as u64)
}

/// Takes over a handle that another process has opened in this one by [`give_to`].
///
/// # Safety
/// The number comes from the process that gave it, and nobody else has taken it.
pub(super) unsafe fn taken(number: u64) -> io::Result<OwnedHandle> {
    let number = usize::try_from(number).map_err(io::Error::other)?;
    // SAFETY: promised by whoever calls this.
    unsafe { owned(number as HANDLE) }
}

/// Text with the NUL at its end that Win32 wants.
pub(super) fn wide(text: impl AsRef<OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}
