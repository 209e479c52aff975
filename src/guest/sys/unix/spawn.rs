//! What has to happen between fork and exec, and limits around it.
//!
//! UNSAFETY: `pre_exec` is unsafe because its closure runs in a forked copy of a threaded process, where only
//! async-signal-safe calls are allowed. The closure here makes plain system calls and allocates nothing.
#![expect(unsafe_code, reason = "pre_exec has no safe form")]

use std::{fs::File, io, os::unix::process::ExitStatusExt as _, process::ExitStatus, sync::OnceLock};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit, setsid};
use tokio::process::Command;

use super::subreaper::{self, Plan};

/// The limit of open files that the agent was started with, for its children.
static ORIGINAL_FILE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process open as many files as its hard limit allows; children get the old limit back.
///
/// Many callers at once need many sockets; programs that use `select` break above 1,024.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let original = ORIGINAL_FILE_LIMIT.get_or_init(|| limit);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::debug!(%error, ?original, "the limit of open files stays as it is");
    }
}

/// Starts the command as the leader of a new session, in the cgroup whose `cgroup.procs` is `join`, or below a
/// subreaper. The command's child is then the subreaper, which ends as the program ends.
pub(super) fn in_session_of_its_own(command: &mut Command, join: Option<File>, below: Option<Plan>) {
    let limit = ORIGINAL_FILE_LIMIT.get().copied();
    // SAFETY: see the modules: setsid, write, setrlimit and the subreaper's are system calls on values made before
    // the fork.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if let Some(plan) = &below {
                subreaper::split(plan)?; // from here on in the program's own process
            }
            if let Some(join) = &join {
                rustix::io::write(join, b"0")?; // "me"
            }
            if let Some(limit) = &limit {
                setrlimit(Resource::Nofile, *limit)?;
            }
            Ok(())
        });
    }
}

/// The signal that killed a process, if one did.
pub(super) fn leader_signal(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The whole of `podlink agent interrupt`, which the agent itself does not need here.
///
/// # Errors
/// When there is no such process, or it is another account's.
pub fn interrupt_process(pid: u32) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(kill_process(pid, Signal::INT)?)
}
