//! The terminal that podlink was started from.
#![expect(unsafe_code, reason = "Win32 is called")]
//!
//! UNSAFETY: each call takes plain values, and strings that end in a zero and live as long as the call. A handle that is
//! opened here is given to the process as a standard stream, and stays open until its end.

use std::ptr::{null, null_mut};

use windows_sys::Win32::{
    Foundation::{GENERIC_READ, GENERIC_WRITE, INVALID_HANDLE_VALUE},
    Storage::FileSystem::{
        CreateFileW, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_UNKNOWN, GetFileType, OPEN_EXISTING,
    },
    System::Console::{
        ATTACH_PARENT_PROCESS, AttachConsole, GetStdHandle, STD_ERROR_HANDLE, STD_HANDLE, STD_INPUT_HANDLE,
        STD_OUTPUT_HANDLE, SetStdHandle,
    },
};

/// Takes the standard streams of the parent's terminal where podlink was given none.
///
/// The executable is of the subsystem that gets no console, so that no window flashes where the agent starts at log-on.
/// Who starts it from a terminal still wants to read what it says. An agent that is given streams, if only `NUL`, stays
/// apart from the terminal, and lives on when that is closed.
pub fn use_terminal() {
    if is_given(STD_OUTPUT_HANDLE) || is_given(STD_ERROR_HANDLE) {
        return;
    }
    // SAFETY: takes a process' id or this constant.
    if unsafe { AttachConsole(ATTACH_PARENT_PROCESS) } == 0 {
        return; // the parent has no console, as at log-on
    }
    for (stream, device) in
        [(STD_INPUT_HANDLE, "CONIN$\0"), (STD_OUTPUT_HANDLE, "CONOUT$\0"), (STD_ERROR_HANDLE, "CONOUT$\0")]
    {
        if is_given(stream) {
            continue; // the attaching may have filled it
        }
        let name: Vec<u16> = device.encode_utf16().collect();
        // SAFETY: the name ends in a zero and outlives the call; no security attributes and no template are allowed.
        let handle = unsafe {
            CreateFileW(
                name.as_ptr(),
                GENERIC_READ | GENERIC_WRITE,
                FILE_SHARE_READ | FILE_SHARE_WRITE,
                null(),
                OPEN_EXISTING,
                0,
                null_mut(),
            )
        };
        if handle != INVALID_HANDLE_VALUE {
            // SAFETY: the handle is open and is never closed.
            unsafe { SetStdHandle(stream, handle) };
        }
    }
}

/// Whether there is such a stream. A program that the desktop starts may find something else in its place.
fn is_given(stream: STD_HANDLE) -> bool {
    // SAFETY: both take any value, and say so where it is no handle.
    unsafe {
        let handle = GetStdHandle(stream);
        !handle.is_null() && handle != INVALID_HANDLE_VALUE && GetFileType(handle) != FILE_TYPE_UNKNOWN
    }
}
