//! A Ctrl-C for the programs of one console.
//!
//! Implementation note: it goes to all of the console that its sender is in, and a process is in one at a time. The agent
//! cannot change its own without those who share it noticing, so a process of its own is started for it
//! (`podlink agent interrupt`), which does nothing else.
//!
//! UNSAFETY: the calls take numbers and no pointers but null.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{io, os::windows::io::AsHandle as _, path::Path, time::Duration};

use windows_sys::Win32::System::Console::{
    AttachConsole, CTRL_C_EVENT, FreeConsole, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};

use super::{
    create_process::{self, exit_code},
    handle::worked,
    helper,
    wait::happens_within,
};

/// How long the helper may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Types a Ctrl-C in the console of a process. `program` is the executable whose `agent interrupt` does it. Blocks for as
/// long as that takes.
pub(super) fn interrupt(program: &Path, pid: u32) -> io::Result<()> {
    let args = ["agent", "interrupt", &pid.to_string()].map(str::to_owned);
    let process = helper::start(program, &args, None)?;
    if !happens_within(process.as_handle(), DEADLINE) {
        create_process::terminate(process.as_handle(), 1)?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    match exit_code(process.as_handle())? {
        0 => Ok(()),
        code => Err(io::Error::other(format!("the program has no console to type a Ctrl-C in ({code})"))),
    }
}

/// The whole of `podlink agent interrupt`.
///
/// # Errors
/// When there is no such process, or it has no console.
pub fn interrupt_process(pid: u32) -> io::Result<()> {
    // SAFETY: see the module. From here on a Ctrl-C means nothing to this process.
    unsafe {
        worked(SetConsoleCtrlHandler(None, 1))?;
        FreeConsole(); // it fails where there is none, which is as good
        worked(AttachConsole(pid))?;
        let sent = worked(GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0));
        FreeConsole();
        sent
    }
}

/// Lets a Ctrl-C mean something to the agent's children, whatever its own parent has told it.
pub(super) fn let_children_be_interrupted() {
    // SAFETY: see the module.
    if let Err(error) = worked(unsafe { SetConsoleCtrlHandler(None, 0) }) {
        tracing::debug!(%error, "whether a Ctrl-C means something stays as it was");
    }
}
