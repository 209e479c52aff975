//! What tells a process from a later one of the same number, and what is seen of it from outside.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; a
//! handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "processes have no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
};

use windows_sys::Win32::{
    Foundation::{FILETIME, STILL_ACTIVE},
    System::Threading::{GetExitCodeProcess, GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION},
};

/// The times of a process, each in units of 100 ns; the first since 1601.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// When it was started.
    pub(super) started: u64,
    /// Its processor time, in user and kernel mode.
    pub(super) cpu: u64,
}

/// The two halves as one number.
pub(super) const fn ticks(time: FILETIME) -> u64 {
    (time.dwHighDateTime as u64) << 32 | time.dwLowDateTime as u64
}

/// Opens a process to ask it something.
pub(super) fn open(pid: u32) -> io::Result<OwnedHandle> {
    // SAFETY: it takes no pointer.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Its times.
pub(super) fn times(process: &OwnedHandle) -> io::Result<Times> {
    let [mut started, mut ended, mut kernel, mut user] = [FILETIME::default(); 4];
    // SAFETY: the handle is open across the call, and the places are of their type.
    let told = unsafe {
        GetProcessTimes(process.as_raw_handle(), &raw mut started, &raw mut ended, &raw mut kernel, &raw mut user)
    };
    if told == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Times { started: ticks(started), cpu: ticks(kernel).saturating_add(ticks(user)) })
}

/// When the process started, in ticks of the system's own; `None` where there is none.
pub(in crate::guest) fn start_time(pid: u32) -> Option<u64> {
    Some(times(&open(pid).ok()?).ok()?.started)
}

/// Whether the process that started then is alive; one that has ended and that somebody still holds a handle of is not.
pub(in crate::guest) fn process_lives(pid: u32, started: u64) -> bool {
    let Ok(process) = open(pid) else { return false };
    let mut code = 0;
    // SAFETY: the handle is open across the call, and the place one for a code.
    let told = unsafe { GetExitCodeProcess(process.as_raw_handle(), &raw mut code) };
    told != 0 && code == STILL_ACTIVE.cast_unsigned() && times(&process).is_ok_and(|times| times.started == started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_start() {
        let own = start_time(std::process::id());
        assert!(own.is_some_and(|started| started > 0));
        assert_eq!(start_time(std::process::id()), own);
        // numbers here are multiples of four
        assert_eq!(start_time(u32::MAX), None);
    }
}
