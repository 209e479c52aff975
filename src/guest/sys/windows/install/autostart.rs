//! What starts the agent: the Run key at the user's log-on, or the service manager when the system boots.
//!
//! UNSAFETY: one call that takes a handle of this very process.
#![expect(unsafe_code, reason = "SetHandleInformation has no safe form")]

use std::{
    os::windows::{io::AsRawHandle as _, process::CommandExt as _},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use windows_sys::Win32::{
    Foundation::{ERROR_ACCESS_DENIED, HANDLE_FLAG_INHERIT, SetHandleInformation},
    System::Threading::{CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW},
};

use super::{registry, service};
use crate::{
    guest::install::{Start, Verdict},
    protocol::RunMode,
};

const RUN_KEY: &str = r"Software\Microsoft\Windows\CurrentVersion\Run";
const RUN_NAME: &str = "podlink-agent";

/// What asks `agent serve` to be a service's program, once it can be.
const SERVICE_FLAG: &str = "--service";

/// Nothing starts again what the Run key has started; a service's manager does, and cannot say why it had to.
pub(in crate::guest) const NEEDS_SUPERVISOR: bool = true;

/// The user's own session: it has the desktop and the user's environment.
pub(in crate::guest) const fn default_mode() -> RunMode {
    RunMode::Session
}

/// What starts the agent, in a few words.
pub(in crate::guest) const fn mode_name(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Service => "the service manager",
        RunMode::Session => "the Run key of this user",
        RunMode::Manual | RunMode::Unknown => "hand",
    }
}

/// What that means for whoever relies on the agent.
pub(in crate::guest) const fn mode_note(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Service => "Windows starts the agent when it boots, before anybody logs on; its calls see no desktop",
        RunMode::Session => {
            "Windows starts the agent when this user logs on; it ends with the session, and comes back with the next log-on"
        }
        RunMode::Manual | RunMode::Unknown => "nothing starts the agent but you",
    }
}

/// The command line, as Windows takes it apart again.
fn command_line(start: &Start) -> anyhow::Result<String> {
    let mut words = vec![start.exe.to_str().context("the program's path is no text")?.to_owned()];
    words.extend(start.args.iter().cloned());
    if start.mode == RunMode::Service {
        words.push(SERVICE_FLAG.to_owned());
    }
    ensure!(words.iter().all(|word| !word.contains('"')), "a path with quotes in it cannot be registered");
    let quoted = |word: String| {
        // a backslash before the closing quote would be taken for an escape
        let tail = word.len() - word.trim_end_matches('\\').len();
        if word.contains([' ', '\t', '&', '^', '(', ')']) || word.is_empty() {
            format!("\"{word}{}\"", "\\".repeat(tail))
        } else {
            word
        }
    };
    // the program's own always: without them its path ends at the first blank
    let mut line = format!("\"{}\"", words.remove(0));
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word));
    }
    Ok(line)
}

/// Has the agent started from now on.
pub(in crate::guest) async fn register(start: &Start) -> Verdict {
    match try_register(start) {
        Ok(()) => Verdict::DONE,
        Err(error) => Verdict::failed(error),
    }
}

fn try_register(start: &Start) -> anyhow::Result<()> {
    /// What Explorer takes of a value of the Run key.
    const LONGEST: usize = 260;
    let line = command_line(start)?;
    if start.mode == RunMode::Service {
        // one or the other, or two agents would want the port
        registry::remove(RUN_KEY, RUN_NAME).context("the Run key's value cannot be removed")?;
        return service::create(&line).context("the service cannot be registered; that takes an administrator");
    }
    ensure!(
        line.encode_utf16().count() <= LONGEST,
        "the command line is longer than the Run key takes ({LONGEST} characters); choose shorter folders: {line}"
    );
    // removing a service takes an administrator, whom nobody needs who has none
    if service::command_line().ok().flatten().is_some() {
        service::remove().context("the service that an installation before this has made cannot be removed")?;
    }
    if registry::read(RUN_KEY, RUN_NAME)?.as_deref() != Some(&line) {
        registry::write(RUN_KEY, RUN_NAME, &line).context("the Run key cannot be written")?;
    }
    let read = registry::read(RUN_KEY, RUN_NAME)?;
    ensure!(read.as_deref() == Some(&line), "the Run key does not read back as it was written");
    Ok(())
}

/// Undoes that.
pub(in crate::guest) async fn unregister(start: &Start) -> Verdict {
    let removed = match start.mode {
        RunMode::Service => service::remove(),
        RunMode::Session => registry::remove(RUN_KEY, RUN_NAME),
        _ => Ok(()),
    };
    removed.map_or_else(Verdict::failed, |()| Verdict::DONE)
}

/// The command line that starts the agent; `None` where nothing does.
pub(in crate::guest) async fn registered(start: &Start) -> Option<String> {
    match start.mode {
        RunMode::Service => service::command_line().ok().flatten().map(|line| format!("service: {line}")),
        RunMode::Session => {
            let line = registry::read(RUN_KEY, RUN_NAME).ok().flatten()?;
            Some(format!(r"HKCU\{RUN_KEY}\{RUN_NAME}: {line}"))
        }
        _ => None,
    }
}

/// Starts the agent now, without a window, beside us and not below: it outlives this process, and holds nothing of it.
pub(in crate::guest) async fn start_agent(start: &Start) -> anyhow::Result<()> {
    anyhow::ensure!(start.root.is_none(), "--root moves the folders of a Unix system; here there are none to move");
    if start.mode == RunMode::Service {
        return service::start().context("the service cannot be started");
    }
    keep_own_handles();
    let spawn = |flags| {
        #[expect(clippy::disallowed_methods, reason = "the agent itself, which is to outlive this process")]
        let mut command = Command::new(&start.exe);
        command.args(&start.args).creation_flags(CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP | flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove("PODLINK_CALL");
        if let Some(folder) = start.exe.parent() {
            command.current_dir(folder);
        }
        command.spawn()
    };
    match spawn(CREATE_BREAKAWAY_FROM_JOB) {
        // the job that we are in lets nobody out
        Err(error) if error.raw_os_error() == Some(ERROR_ACCESS_DENIED.cast_signed()) => spawn(0),
        spawned => spawned,
    }
    .with_context(|| format!("cannot start {}", start.exe.display()))?;
    Ok(())
}

/// What this process writes to, a log that `install.bat` has opened say, is not to be held open by the agent as well.
fn keep_own_handles() {
    for handle in
        [std::io::stdin().as_raw_handle(), std::io::stdout().as_raw_handle(), std::io::stderr().as_raw_handle()]
    {
        // SAFETY: it changes a flag of a handle of this process; one that is none is refused.
        unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_quoted() {
        let args = ["serve", r"C:\a b\", r"C:\plain\", ""].map(str::to_owned).into();
        let start = Start { mode: RunMode::Session, exe: r"C:\Program Files\p.exe".into(), args, root: None };
        assert_eq!(command_line(&start).unwrap(), r#""C:\Program Files\p.exe" serve "C:\a b\\" C:\plain\ """#);
    }
}
