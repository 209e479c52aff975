//! What can go wrong on the host's side: a kind to choose by, a sentence, a cause, and what to do.

use std::{error::Error as StdError, fmt};

use crate::protocol::ErrorBody;

/// The result of the host's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the host's side.
///
/// Its text says only this level; the cause is its `source`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    detail: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    answer: Option<Box<ErrorBody>>,
}

/// What a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing listens on the agent's port.
    Refused,
    /// The connection was made and then closed or reset without an answer.
    Reset,
    /// Something accepts connections and does not answer in time.
    Silent,
    /// A complete answer came that is not an agent's.
    ForeignProgram,
    /// An agent answers, with another token.
    TokenMismatch,
    /// The agent answers and the guest is not ready.
    NotReady,
    /// The guest's installation failed.
    InstallFailed,
    /// The agent has no slot left.
    Busy,
    /// The agent went away during the call.
    AgentLost,
    /// The agent is going down.
    AgentStopping,
    /// The agent refused the call; its own code is in the detail.
    Rejected,
    /// The agent could not start the program.
    SpawnFailed,
    /// The call was ended by somebody before it had ended itself.
    Cancelled,
    /// The agent knows no such process or session.
    NotFound,
    /// The agent cannot do this.
    Unsupported,
    /// A wait reached its time-out.
    WaitTimedOut,
    /// There is no container, or it is gone.
    NoContainer,
    /// No such pod.
    NoPod,
    /// A setting is wrong.
    Settings,
    /// A port is taken.
    PortTaken,
    /// The engine is missing or failed.
    Engine,
    /// A file could not be read or written, or is not as it must be.
    File,
    /// Ctrl-C.
    Interrupted,
    /// An answer that makes no sense, or a bug.
    Internal,
}

impl ErrorKind {
    /// The kind as it stands in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Silent => "silent",
            Self::ForeignProgram => "foreign_program",
            Self::TokenMismatch => "token_mismatch",
            Self::NotReady => "not_ready",
            Self::InstallFailed => "install_failed",
            Self::Busy => "busy",
            Self::AgentLost => "agent_lost",
            Self::AgentStopping => "agent_stopping",
            Self::Rejected => "rejected",
            Self::SpawnFailed => "spawn_failed",
            Self::Cancelled => "cancelled",
            Self::NotFound => "not_found",
            Self::Unsupported => "unsupported",
            Self::WaitTimedOut => "wait_timed_out",
            Self::NoContainer => "no_container",
            Self::NoPod => "no_pod",
            Self::Settings => "settings",
            Self::PortTaken => "port_taken",
            Self::Engine => "engine",
            Self::File => "file",
            Self::Interrupted => "interrupted",
            Self::Internal => "internal_error",
        }
    }
}

impl Error {
    /// A failure of this kind, said in one sentence.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), hint: None, source: None, answer: None }
    }

    /// Adds what to do; commands to type stand in backticks.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds the agent's own words.
    #[must_use]
    pub fn with_answer(mut self, answer: ErrorBody) -> Self {
        self.answer = Some(Box::new(answer));
        self
    }

    /// The agent's own words, where it was the agent that refused; a call that it ended has its output in them.
    pub fn answer(&self) -> Option<&ErrorBody> {
        self.answer.as_deref()
    }

    /// What kind it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl From<crate::token::TokenError> for Error {
    fn from(error: crate::token::TokenError) -> Self {
        Self::new(ErrorKind::File, "the pod's secrets are not as they must be").with_source(error)
    }
}
