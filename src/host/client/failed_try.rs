//! How one try of a call failed, and what is said when there are no more.

use super::{
    super::{Error, ErrorKind},
    AgentClient,
};

/// How a try failed.
#[derive(Debug)]
pub(super) enum TryError {
    /// Before the request was sent: nothing can have run.
    Unsent(Error),
    /// After it may have been sent.
    Broken(Error),
    /// The call's whole deadline has passed, after it may have been sent.
    TimedOut,
    /// An answer came and is too long.
    Answered(Error),
}

impl AgentClient {
    /// The agent went away under a call.
    pub(super) fn lost(&self) -> Error {
        let pod = &self.place.pod_flag;
        Error::new(
            ErrorKind::AgentLost,
            "the agent went away while the call ran; whether the script finished is not known",
        )
        .with_hint(format!("look at `podlink pod status{pod}`; `podlink pod up{pod}` starts the pod again"))
    }

    /// The agent has not kept its own time-out.
    pub(super) fn overdue(&self) -> Error {
        let pod = &self.place.pod_flag;
        Error::new(
            ErrorKind::AgentLost,
            "the agent did not answer even after the call's own time-out; whether the script finished is not known",
        )
        .with_hint(format!("look at `podlink pod status{pod}`"))
    }
}

/// Another agent answers than the one that took the call.
pub(super) fn restarted() -> Error {
    Error::new(ErrorKind::AgentLost, "the agent restarted while the call ran; whether the script finished is not known")
}
