//! A process of the agent's own, in no call's tree and in no console.

use std::{
    io,
    os::windows::io::{AsHandle as _, OwnedHandle},
    path::Path,
};

use windows_sys::Win32::System::Threading::{CREATE_BREAKAWAY_FROM_JOB, DETACHED_PROCESS};

use super::{
    command_line,
    create_process::{Creation, Standard, create},
    environment::Environment,
    handle::duplicate,
    pipe::ChildEnd,
    program::system_root,
};

/// Starts it, with the least of variables. Without `stdin` there is nothing to read.
pub(super) fn start(program: &Path, args: &[String], stdin: Option<OwnedHandle>) -> io::Result<OwnedHandle> {
    let mut argv = vec![program.to_string_lossy().into_owned()];
    argv.extend_from_slice(args);
    let stdin = stdin.map_or_else(ChildEnd::null, ChildEnd::from).into_handle()?;
    let [stdout, stderr] = [ChildEnd::null().into_handle()?, ChildEnd::null().into_handle()?];
    let environment = Environment::least();
    let make = |flags| {
        create(Creation {
            program,
            line: command_line::of_program(&argv)?,
            environment: &environment,
            folder: &system_root(),
            standard: Standard::Streams([stdin.as_handle(), stdout.as_handle(), stderr.as_handle()]),
            flags,
        })
    };
    // out of whatever job the agent itself is in, where that one lets it
    let suspended = make(DETACHED_PROCESS | CREATE_BREAKAWAY_FROM_JOB).or_else(|_| make(DETACHED_PROCESS))?;
    let process = duplicate(suspended.process())?;
    suspended.resume()?;
    Ok(process)
}
