//! The service: registered, started, stopped and removed with the system's service manager.
//!
//! UNSAFETY: the manager's functions take handles, which are held here until they are closed once, and pointers to
//! texts that end with a zero and outlive the call.
#![expect(unsafe_code, reason = "the service manager has no safe form")]

use std::{io, ptr};

use windows_sys::Win32::{
    Foundation::{
        ERROR_SERVICE_ALREADY_RUNNING, ERROR_SERVICE_DOES_NOT_EXIST, ERROR_SERVICE_EXISTS,
        ERROR_SERVICE_MARKED_FOR_DELETE,
    },
    System::Services::{
        ChangeServiceConfigW, CloseServiceHandle, CreateServiceW, DeleteService, OpenSCManagerW, OpenServiceW,
        QUERY_SERVICE_CONFIGW, QueryServiceConfigW, SC_HANDLE, SC_MANAGER_CONNECT, SC_MANAGER_CREATE_SERVICE,
        SERVICE_ALL_ACCESS, SERVICE_AUTO_START, SERVICE_ERROR_NORMAL, SERVICE_NO_CHANGE, SERVICE_QUERY_CONFIG,
        SERVICE_WIN32_OWN_PROCESS, StartServiceW,
    },
};

use super::registry::wide;

/// The service's name.
const NAME: &str = "podlink-agent";
/// As people see it.
const DISPLAY: &str = "podlink agent";

/// An open handle of the manager's; dropping it closes it.
struct Handle(SC_HANDLE);

impl Handle {
    fn checked(handle: SC_HANDLE) -> io::Result<Self> {
        if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self(handle)) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is closed once.
        unsafe { CloseServiceHandle(self.0) };
    }
}

fn manager(access: u32) -> io::Result<Handle> {
    // SAFETY: nulls stand for this machine and its only database.
    Handle::checked(unsafe { OpenSCManagerW(ptr::null(), ptr::null(), access) })
}

fn open(access: u32) -> io::Result<Option<Handle>> {
    let manager = manager(SC_MANAGER_CONNECT)?;
    let name = wide(NAME);
    // SAFETY: the manager is open; the name ends with a zero.
    match Handle::checked(unsafe { OpenServiceW(manager.0, name.as_ptr(), access) }) {
        Err(error) if is(&error, ERROR_SERVICE_DOES_NOT_EXIST) => Ok(None),
        opened => opened.map(Some),
    }
}

fn is(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}

fn checked(succeeded: i32) -> io::Result<()> {
    if succeeded == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the system start this command line when it boots.
pub(super) fn create(command_line: &str) -> io::Result<()> {
    let manager = manager(SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE)?;
    let (name, display, line) = (wide(NAME), wide(DISPLAY), wide(command_line));
    // SAFETY: the manager is open; all texts end with a zero; nulls stand for: no group, no tag, depending on nothing,
    // as SYSTEM.
    let made = Handle::checked(unsafe {
        CreateServiceW(
            manager.0,
            name.as_ptr(),
            display.as_ptr(),
            SERVICE_ALL_ACCESS,
            SERVICE_WIN32_OWN_PROCESS,
            SERVICE_AUTO_START,
            SERVICE_ERROR_NORMAL,
            line.as_ptr(),
            ptr::null(),
            ptr::null_mut(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
        )
    });
    match made {
        Ok(_) => Ok(()),
        Err(error) if is(&error, ERROR_SERVICE_EXISTS) => change(&line),
        Err(error) => Err(error),
    }
}

/// Sets the command line of the one that is there.
fn change(line: &[u16]) -> io::Result<()> {
    let Some(service) = open(SERVICE_ALL_ACCESS)? else { return Err(io::ErrorKind::NotFound.into()) };
    // SAFETY: the service is open; the line ends with a zero; nulls leave things as they are.
    checked(unsafe {
        ChangeServiceConfigW(
            service.0,
            SERVICE_NO_CHANGE,
            SERVICE_AUTO_START,
            SERVICE_NO_CHANGE,
            line.as_ptr(),
            ptr::null(),
            ptr::null_mut(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
        )
    })
}

/// The command line that the system starts; `None` where there is no such service.
pub(super) fn command_line() -> io::Result<Option<String>> {
    /// What the manager gives at most.
    const BYTES: u32 = 8192;
    let Some(service) = open(SERVICE_QUERY_CONFIG)? else { return Ok(None) };
    // of the alignment that the structure at its start asks for
    let mut buffer = vec![0_u64; BYTES as usize / 8];
    let mut needed = 0;
    // SAFETY: the service is open; the buffer is aligned and as long as said. On success a structure stands at its
    // start, whose texts lie in the same buffer and end with a zero.
    unsafe {
        let config: *mut QUERY_SERVICE_CONFIGW = buffer.as_mut_ptr().cast();
        checked(QueryServiceConfigW(service.0, config, BYTES, &raw mut needed))?;
        let path = (*config).lpBinaryPathName;
        if path.is_null() {
            return Ok(None);
        }
        let mut len = 0;
        while *path.add(len) != 0 {
            len += 1;
        }
        Ok(Some(String::from_utf16_lossy(std::slice::from_raw_parts(path, len))))
    }
}

/// Starts it; one that runs is as good.
pub(super) fn start() -> io::Result<()> {
    let Some(service) = open(SERVICE_ALL_ACCESS)? else { return Err(io::ErrorKind::NotFound.into()) };
    // SAFETY: the service is open; it takes no arguments.
    match checked(unsafe { StartServiceW(service.0, 0, ptr::null()) }) {
        Err(error) if is(&error, ERROR_SERVICE_ALREADY_RUNNING) => Ok(()),
        started => started,
    }
}

/// Removes it; where it still runs, once it has ended. One that is not there is as good, or is going already.
pub(super) fn remove() -> io::Result<()> {
    let Some(service) = open(SERVICE_ALL_ACCESS)? else { return Ok(()) };
    // SAFETY: the service is open.
    match checked(unsafe { DeleteService(service.0) }) {
        Err(error) if is(&error, ERROR_SERVICE_MARKED_FOR_DELETE) => Ok(()),
        removed => removed,
    }
}
