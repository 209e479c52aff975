//! From an error to a line on stderr, an object on stdout, and an exit code.

use serde::Serialize;

use super::{exit::Exit, output::Printer};
#[cfg(unix)]
use crate::host;

/// The code of a command that a signal ended; the library's own word for its waits.
const INTERRUPTED: &str = "interrupted";

/// A failed command: what, why, what to do, and how the process ends.
#[derive(Debug)]
pub(super) struct Failure {
    code: &'static str,
    detail: String,
    hint: Option<String>,
    exit: Exit,
}

/// The object that `--json` prints for a failure.
#[derive(Debug, Serialize)]
struct FailureJson<'a> {
    error: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
}

impl Failure {
    /// A failure of the command line itself, found after clap was content with it.
    pub(super) fn usage(detail: impl Into<String>) -> Self {
        Self { code: "usage", detail: detail.into(), hint: None, exit: Exit::USAGE }
    }

    /// The command was asked to end by a signal.
    pub(super) fn interrupted(detail: impl Into<String>, exit: Exit) -> Self {
        Self { code: INTERRUPTED, detail: detail.into(), hint: None, exit }
    }

    /// The guest's installation failed, of itself.
    pub(super) fn install_failed(detail: impl Into<String>) -> Self {
        Self { code: "install_failed", detail: detail.into(), hint: None, exit: Exit::INSTALL_FAILED }
    }

    /// The same, ending with another code.
    #[cfg(unix)] // of the host's commands alone
    #[must_use]
    pub(super) fn exiting(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The code that the command ends with.
    pub(super) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether it stands for a signal that asked the command to end.
    pub(super) fn is_of_signal(&self) -> bool {
        self.code == INTERRUPTED
    }

    /// The same, of one thing out of several.
    #[cfg(unix)] // of the host's commands alone
    #[must_use]
    pub(super) fn about(self, what: &str) -> Self {
        Self { detail: format!("{what}: {}", self.detail), ..self }
    }

    /// Prints it: one line on stderr, or with `--json` the object on stdout.
    pub(super) fn report(&self, printer: Printer) -> Exit {
        if printer.is_json() {
            printer.json(self);
        } else {
            let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            printer.error(&format!("{}{hint}", self.detail));
        }
        self.exit
    }
}

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json =
            FailureJson { error: self.code, detail: &self.detail, hint: self.hint.as_deref(), exit_code: self.exit.0 };
        json.serialize(serializer)
    }
}

#[cfg(unix)]
impl From<host::Error> for Failure {
    fn from(error: host::Error) -> Self {
        use host::ErrorKind as Kind;
        let exit = match error.kind() {
            Kind::WaitTimedOut => Exit::WAIT_TIMED_OUT,
            Kind::NoContainer => Exit::NO_CONTAINER,
            Kind::TokenMismatch => Exit::TOKEN_MISMATCH,
            Kind::ForeignProgram => Exit::FOREIGN_PROGRAM,
            Kind::InstallFailed => Exit::INSTALL_FAILED,
            Kind::Interrupted => Exit::INTERRUPTED,
            _ => Exit::FAILED,
        };
        Self {
            code: error.kind().as_str(),
            hint: error.hint().map(str::to_owned),
            detail: format!("{:#}", anyhow::Error::from(error)),
            exit,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        #[cfg(unix)]
        let error = match error.downcast::<host::Error>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        Self { code: "internal_error", detail: format!("{error:#}"), hint: None, exit: Exit::FAILED }
    }
}
