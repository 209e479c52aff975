//! A process from its making to its first step: made standing still, so that it can be put where it belongs before it
//! does anything.
//!
//! UNSAFETY: each call gets pointers to values that live for as long as it runs.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    ffi::c_void,
    io,
    mem::size_of,
    os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle},
    path::Path,
    ptr,
};

use windows_sys::Win32::{
    Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation},
    System::{
        Console::HPCON,
        Threading::{
            CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessW, DeleteProcThreadAttributeList,
            EXTENDED_STARTUPINFO_PRESENT, GetExitCodeProcess, InitializeProcThreadAttributeList,
            PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, PROCESS_INFORMATION, ResumeThread,
            STARTF_USESTDHANDLES, STARTUPINFOEXW, TerminateProcess, UpdateProcThreadAttribute,
        },
    },
};

use super::{
    environment::Environment,
    handle::{owned, wide, worked},
};

/// What a process reads and writes.
#[derive(Debug)]
pub(super) enum Standard<'a> {
    /// Its stdin, stdout and stderr, and no other handle of ours.
    Streams([BorrowedHandle<'a>; 3]),
    /// A pseudo console.
    Console(HPCON),
}

/// What a process is made of.
#[derive(Debug)]
pub(super) struct Creation<'a> {
    /// The file.
    pub(super) program: &'a Path,
    /// Its name and arguments, with a NUL at the end.
    pub(super) line: Vec<u16>,
    /// Its variables.
    pub(super) environment: &'a Environment,
    /// Where it runs.
    pub(super) folder: &'a Path,
    /// What it reads and writes.
    pub(super) standard: Standard<'a>,
    /// What else is asked for: which console it gets, foremost.
    pub(super) flags: u32,
}

/// A process that has not taken a step; dropped before it has, it never will.
#[derive(Debug)]
pub(super) struct Suspended {
    process: OwnedHandle,
    thread: OwnedHandle,
    pid: u32,
    resumed: bool,
}

/// A list of one attribute; the value that it names has to live as long.
struct Attributes {
    list: Vec<usize>,
    made: bool,
}

impl Attributes {
    fn new(attribute: u32, value: *const c_void, size: usize) -> io::Result<Self> {
        let mut bytes = 0;
        // SAFETY: without a list it only says how large one is.
        unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), 1, 0, &raw mut bytes) };
        let mut attributes = Self { list: vec![0; bytes.div_ceil(size_of::<usize>())], made: false };
        // SAFETY: the list is as large as was asked for, and aligned to what it holds.
        worked(unsafe { InitializeProcThreadAttributeList(attributes.raw(), 1, 0, &raw mut bytes) })?;
        attributes.made = true;
        // SAFETY: the list is made, and `value` is what the attribute wants: `size` bytes, or a handle itself.
        worked(unsafe {
            UpdateProcThreadAttribute(
                attributes.raw(),
                0,
                attribute as usize,
                value,
                size,
                ptr::null_mut(),
                ptr::null(),
            )
        })?;
        Ok(attributes)
    }

    fn raw(&mut self) -> *mut c_void {
        self.list.as_mut_ptr().cast()
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        if self.made {
            // SAFETY: it has been made, and nobody uses it any more.
            unsafe { DeleteProcThreadAttributeList(self.raw()) };
        }
    }
}

/// Makes the process.
pub(super) fn create(mut what: Creation<'_>) -> io::Result<Suspended> {
    let (program, folder) = (wide(what.program), wide(what.folder));
    let block = what.environment.to_block();
    let mut handles: [HANDLE; 3] = [ptr::null_mut(); 3];
    let (mut attributes, inherits) = match &what.standard {
        Standard::Streams(streams) => {
            for (handle, stream) in handles.iter_mut().zip(streams) {
                *handle = stream.as_raw_handle();
                // SAFETY: the handle is open for as long as it is borrowed.
                worked(unsafe { SetHandleInformation(*handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) })?;
            }
            let list = ptr::from_ref(&handles).cast();
            (Attributes::new(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, list, size_of_val(&handles))?, 1)
        }
        Standard::Console(console) => {
            // the value itself is what is to be given, not where it lies
            let value = ptr::without_provenance(console.cast_unsigned());
            (Attributes::new(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, value, size_of::<HPCON>())?, 0)
        }
    };
    let mut startup = STARTUPINFOEXW { lpAttributeList: attributes.raw(), ..STARTUPINFOEXW::default() };
    startup.StartupInfo.cb = u32::try_from(size_of::<STARTUPINFOEXW>()).map_err(io::Error::other)?;
    // in a pseudo console too, with none: or it would get ours
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError] = handles;
    let flags = what.flags | CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT;
    let mut made = PROCESS_INFORMATION::default();
    // SAFETY: all texts end in a NUL, the block in two; the attributes, the handles and all else live as long as the
    // call. The line may be written to.
    worked(unsafe {
        CreateProcessW(
            program.as_ptr(),
            what.line.as_mut_ptr(),
            ptr::null(),
            ptr::null(),
            inherits,
            flags,
            block.as_ptr().cast(),
            folder.as_ptr(),
            (&raw const startup).cast(),
            &raw mut made,
        )
    })?;
    // SAFETY: both handles are new.
    let (process, thread) = unsafe { (owned(made.hProcess), owned(made.hThread)) };
    Ok(Suspended { process: process?, thread: thread?, pid: made.dwProcessId, resumed: false })
}

impl Suspended {
    /// The process itself.
    pub(super) fn process(&self) -> BorrowedHandle<'_> {
        self.process.as_handle()
    }

    /// Its number.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it go.
    pub(super) fn resume(mut self) -> io::Result<()> {
        // SAFETY: the handle is open.
        if unsafe { ResumeThread(self.thread.as_raw_handle()) } == u32::MAX {
            return Err(io::Error::last_os_error());
        }
        self.resumed = true;
        Ok(())
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if !self.resumed
            && let Err(error) = terminate(self.process(), 1)
        {
            tracing::error!(%error, pid = self.pid, "a process that was to do nothing could not be ended");
        }
    }
}

/// Ends a process at once.
pub(super) fn terminate(process: BorrowedHandle<'_>, code: u32) -> io::Result<()> {
    // SAFETY: the handle is open for as long as it is borrowed.
    worked(unsafe { TerminateProcess(process.as_raw_handle(), code) })
}

/// The exit code of a process that has ended.
pub(super) fn exit_code(process: BorrowedHandle<'_>) -> io::Result<u32> {
    let mut code = 0;
    // SAFETY: the handle is open for as long as it is borrowed, and `code` lives as long as the call.
    worked(unsafe { GetExitCodeProcess(process.as_raw_handle(), &raw mut code) })?;
    Ok(code)
}
