//! A call's program: what it is started with, and how it ended.

use std::{collections::BTreeMap, io, path::Path};

use super::{first_process::WaitedFor, pty::PtySlave, spawn::leader_signal, tree::CallTree};
use crate::guest::sys::Exit;

/// What becomes one of a program's standard streams.
pub(crate) use std::process::Stdio as ChildEnd;

/// A program that is to be started.
#[derive(Debug)]
pub(crate) struct Command {
    inner: tokio::process::Command,
    terminal: Option<PtySlave>,
}

impl Command {
    /// A program and its arguments, in a folder, with the environment of the agent. `argv` is never empty.
    pub(crate) fn new(argv: &[String], folder: &Path) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that starts a call's program")]
        let mut inner = tokio::process::Command::new(&argv[0]);
        inner.args(&argv[1..]).current_dir(folder);
        Self { inner, terminal: None }
    }

    /// Takes all variables away.
    pub(crate) fn clear_env(&mut self) {
        self.inner.env_clear();
    }

    /// Adds variables.
    pub(crate) fn envs(&mut self, variables: &BTreeMap<String, String>) {
        self.inner.envs(variables);
    }

    /// What the program reads and writes.
    pub(crate) fn streams(&mut self, stdin: ChildEnd, stdout: ChildEnd, stderr: ChildEnd) {
        self.inner.stdin(stdin).stdout(stdout).stderr(stderr);
    }

    /// The terminal that the program reads and writes instead.
    pub(crate) fn terminal(&mut self, terminal: PtySlave) {
        self.terminal = Some(terminal);
    }

    /// Lets the program start others outside of its tree. Here nothing of that kind is to be asked for.
    #[expect(clippy::unused_self, reason = "the Windows half notes it")]
    pub(crate) const fn allow_breakaway(&mut self) {}

    /// Starts it inside of the tree.
    pub(crate) fn spawn(mut self, tree: &mut CallTree) -> io::Result<Child> {
        tree.hold(&mut self.inner)?;
        if let Some(terminal) = self.terminal {
            // last: the process that becomes the program takes the terminal over
            terminal.attach_to(&mut self.inner)?;
        }
        let inner = self.inner.spawn()?;
        let pid = inner.id().unwrap_or_default(); // always there before it has been waited for
        let waited_for = WaitedFor::new(pid);
        tree.led_by(pid);
        Ok(Child { inner, pid, _waited_for: waited_for })
    }
}

/// A program that has been started.
#[derive(Debug)]
pub(crate) struct Child {
    inner: tokio::process::Child,
    pid: u32,
    /// Until somebody has waited for it.
    _waited_for: WaitedFor,
}

impl Child {
    /// Its process number.
    pub(crate) const fn id(&self) -> u32 {
        self.pid
    }

    /// Waits for its end; may be asked again and again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        let status = self.inner.wait().await?;
        match (status.code(), leader_signal(status)) {
            (Some(code), _) => Ok(Exit::Code(code.into())),
            (None, Some(signal)) => Ok(Exit::Signal(signal)),
            (None, None) => Err(io::Error::other("the program has neither exited nor been killed")),
        }
    }
}
