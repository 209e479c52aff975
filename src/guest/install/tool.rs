//! Programs of the system that a step asks or has do something.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::super::sys;

/// For one run of one.
const PATIENCE: Duration = Duration::from_mins(1);

/// Most characters of what it said that are told.
const MOST_SAID: usize = 300;

/// What came of a step, or of undoing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::guest) enum Verdict {
    /// It is as it should be; with what is to be known of it.
    Done(Option<String>),
    /// It cannot be yet, and will be later, for this reason.
    Pending(String),
    /// This system has nothing of the kind.
    Unavailable(String),
    /// It could not be done.
    Failed(String),
}

impl Verdict {
    /// Done, and nothing more to say.
    pub(in crate::guest) const DONE: Self = Self::Done(None);

    /// It could not be done, for this error and those behind it.
    pub(in crate::guest) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }
}

/// What a program has said.
#[derive(Debug)]
pub(in crate::guest) struct Tool {
    /// Whether it ended with 0.
    pub(in crate::guest) succeeded: bool,
    /// Its stdout.
    pub(in crate::guest) stdout: String,
    /// Its last words, on one line.
    pub(in crate::guest) said: String,
}

impl Tool {
    /// Runs it to its end, without a window and without input.
    ///
    /// # Errors
    /// `NotFound` where there is none; when it takes too long, it is killed.
    pub(in crate::guest) async fn run(program: &str, args: &[&str]) -> std::io::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the one place that runs a tool of the system")]
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).kill_on_drop(true);
        sys::without_window(&mut command);
        let output = tokio::time::timeout(PATIENCE, command.output())
            .await
            .map_err(|_| std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{program} took too long")))??;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = if stderr.trim().is_empty() { &stdout } else { &stderr };
        let line = text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let said: String = line.join("; ").chars().take(MOST_SAID).collect();
        let said = if said.is_empty() { format!("it ended with {}", output.status) } else { said };
        Ok(Self { succeeded: output.status.success(), stdout, said })
    }
}
