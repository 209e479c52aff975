//! A job object: what the system itself keeps of all processes that descend from one.
//!
//! UNSAFETY: each call gets pointers to values that live for as long as it runs.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    io,
    mem::size_of,
    os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle},
    ptr,
};

use windows_sys::Win32::{
    Foundation::{ERROR_ALREADY_EXISTS, GetLastError},
    Storage::FileSystem::SYNCHRONIZE,
    System::{
        Diagnostics::ToolHelp::{
            CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
        },
        JobObjects::{
            AssignProcessToJobObject, CreateJobObjectW, IsProcessInJob, JOB_OBJECT_LIMIT_BREAKAWAY_OK,
            JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
            JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, OpenJobObjectW,
            QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
        },
        SystemServices::{JOB_OBJECT_QUERY, JOB_OBJECT_TERMINATE},
        Threading::{OpenProcess, PROCESS_QUERY_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_TERMINATE},
    },
};

use super::handle::{give_to, owned, wide, worked};

/// What draws a console's window, hidden or not: no program of the call, though it counts as one.
const CONSOLE_HOST: &str = "conhost.exe";

/// A job object.
#[derive(Debug)]
pub(super) struct Job(OwnedHandle);

impl Job {
    /// A new one of this name, which nobody else has. What is in it lives on when nobody has a handle to it any more.
    pub(super) fn create(name: &str, allow_breakaway: bool) -> io::Result<Self> {
        let name = wide(name);
        // SAFETY: the name ends in a NUL; the handle is new. The error is read before anything else is called.
        let (job, error) = unsafe {
            let made = CreateJobObjectW(ptr::null(), name.as_ptr());
            let error = GetLastError();
            (owned(made)?, error)
        };
        if error == ERROR_ALREADY_EXISTS {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a job object of the call's name is there already",
            ));
        }
        let job = Self(job);
        if allow_breakaway {
            let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
            limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_BREAKAWAY_OK;
            // SAFETY: the size is that of what is pointed to.
            worked(unsafe {
                SetInformationJobObject(
                    job.0.as_raw_handle(),
                    JobObjectExtendedLimitInformation,
                    (&raw const limits).cast(),
                    len_of(&limits),
                )
            })?;
        }
        Ok(job)
    }

    /// One that has been made before; `None` where it is no more.
    pub(super) fn open(name: &str) -> Option<Self> {
        let name = wide(name);
        // SAFETY: the name ends in a NUL; the handle is new.
        unsafe { owned(OpenJobObjectW(JOB_OBJECT_QUERY | JOB_OBJECT_TERMINATE, 0, name.as_ptr())) }.ok().map(Self)
    }

    /// Puts a process into it, for as long as it lives.
    pub(super) fn take_in(&self, process: BorrowedHandle<'_>) -> io::Result<()> {
        // SAFETY: both handles are open for as long as the call takes.
        worked(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) })
    }

    /// Lets the process keep the job's name alive. It gets no right over the job by that.
    pub(super) fn be_kept_by(&self, process: BorrowedHandle<'_>) -> io::Result<()> {
        give_to(process, self.0.as_handle(), SYNCHRONIZE).map(drop)
    }

    /// Ends everybody in it.
    pub(super) fn terminate(&self, code: u32) -> io::Result<()> {
        // SAFETY: the handle is open.
        worked(unsafe { TerminateJobObject(self.0.as_raw_handle(), code) })
    }

    /// How many are alive in it, console hosts too.
    pub(super) fn active(&self) -> io::Result<u32> {
        let mut counts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the size is that of what is pointed to.
        worked(unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                (&raw mut counts).cast(),
                len_of(&counts),
                ptr::null_mut(),
            )
        })?;
        Ok(counts.ActiveProcesses)
    }

    /// Who is alive in it, without console hosts: all processes are asked, since Wine's list of a job's is empty.
    pub(super) fn members(&self) -> Vec<u32> {
        let Ok(processes) = processes().inspect_err(|error| {
            tracing::warn!(%error, "the processes of the system cannot be listed");
        }) else {
            return Vec::new();
        };
        processes
            .into_iter()
            .filter(|pid| self.open_member(*pid, PROCESS_QUERY_LIMITED_INFORMATION).is_some())
            .collect()
    }

    /// Opens those who are alive in it, to end them one by one.
    pub(super) fn open_members(&self) -> Vec<OwnedHandle> {
        processes().unwrap_or_default().into_iter().filter_map(|pid| self.open_member(pid, PROCESS_TERMINATE)).collect()
    }

    fn open_member(&self, pid: u32, rights: u32) -> Option<OwnedHandle> {
        // Wine wants the larger right for the question; Windows gives only the smaller one where a member is elevated
        let process = [PROCESS_QUERY_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION].into_iter().find_map(|ask| {
            // SAFETY: the handle is new.
            unsafe { owned(OpenProcess(ask | rights, 0, pid)) }.ok()
        })?;
        let mut is_in = 0;
        // SAFETY: both handles are open, and `is_in` lives as long as the call.
        worked(unsafe { IsProcessInJob(process.as_raw_handle(), self.0.as_raw_handle(), &raw mut is_in) }).ok()?;
        // one that has ended stays in its job for as long as somebody has a handle to it
        let alive = super::create_process::exit_code(process.as_handle()).is_ok_and(|code| code == STILL_ACTIVE);
        (is_in != 0 && alive).then_some(process)
    }
}

/// What a process that has not ended has for an exit code.
const STILL_ACTIVE: u32 = windows_sys::Win32::Foundation::STILL_ACTIVE.cast_unsigned();

/// The numbers of all processes but console hosts.
fn processes() -> io::Result<Vec<u32>> {
    // SAFETY: the handle is new.
    let snapshot = unsafe { owned(CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0)) }?;
    let mut entry = PROCESSENTRY32W::default();
    entry.dwSize = len_of(&entry);
    let mut found = Vec::new();
    // SAFETY: the entry says its own size, and lives as long as the call.
    let mut there_is_one = unsafe { Process32FirstW(snapshot.as_raw_handle(), &raw mut entry) };
    while there_is_one != 0 {
        let end = entry.szExeFile.iter().position(|unit| *unit == 0).unwrap_or(entry.szExeFile.len());
        let name = String::from_utf16_lossy(entry.szExeFile.get(..end).unwrap_or_default());
        if !name.eq_ignore_ascii_case(CONSOLE_HOST) {
            found.push(entry.th32ProcessID);
        }
        // SAFETY: as above.
        there_is_one = unsafe { Process32NextW(snapshot.as_raw_handle(), &raw mut entry) };
    }
    Ok(found)
}

fn len_of<T>(_: &T) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}
