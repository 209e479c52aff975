//! The way back into an attached call whose connection was lost.

use std::time::Instant;

use super::{
    super::{Error, ErrorKind, Result},
    attached::{Attached, AttachedOutput},
    failed_try::{TryError, restarted},
    retry::Retry,
};

impl AttachedOutput {
    /// Attaches anew where the connection was lost, which `cause` says: from the first byte that has not been handed
    /// out, for as long as the agent keeps the call, or for some seconds where it is a job.
    ///
    /// What was written to the program and had not arrived is not sent again.
    ///
    /// # Errors
    /// [`ErrorKind::AgentLost`] where the agent cannot be reached, or is another one; it says how the call can be come
    /// back to.
    pub async fn reattach(&self, cause: Error) -> Result<Attached> {
        let client = self.client();
        let broken_at = self.broken_at.unwrap_or_else(Instant::now);
        let mut retry = Retry::new(client, self.life, None, cause).since(Some(broken_at));
        loop {
            retry.pause().await.map_err(|error| self.unreachable(error))?;
            match client.attach_to(&self.process_id, Some(self.offset)).await {
                Ok(mut attached) => {
                    attached.continues(self, broken_at);
                    return Ok(attached);
                }
                Err(error) => match error.kind() {
                    // it is of another agent, or the one that ran it has given it up
                    ErrorKind::NotFound => return Err(restarted()),
                    ErrorKind::AgentLost => {
                        let broken = Error::new(ErrorKind::Reset, "the new connection broke too").with_source(error);
                        retry.failed(TryError::Unsent(broken)).map_err(|error| self.unreachable(error))?;
                    }
                    ErrorKind::Refused | ErrorKind::Reset | ErrorKind::Silent => {
                        retry.failed(TryError::Unsent(error)).map_err(|error| self.unreachable(error))?;
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    fn unreachable(&self, cause: Error) -> Error {
        let why =
            format!("the connection to {} was cut and the agent could not be reached again in time", self.process_id);
        self.left(&why, cause)
    }

    /// The error of a caller that leaves the call to itself, and `why`: says what becomes of the call, and how it can be
    /// come back to.
    pub fn left(&self, why: &str, cause: Error) -> Error {
        let (id, pod, offset) = (&self.process_id, self.client().pod_flag(), self.offset);
        let (becomes, hint) = if self.needs_caller {
            (
                "the agent, where it lives, ends it by itself in a few seconds",
                format!("look at `podlink pod ps --all{pod}`"),
            )
        } else {
            ("it may run on", format!("come back with `podlink pod attach{pod} --offset {offset} {id}`"))
        };
        Error::new(ErrorKind::AgentLost, format!("{why}; {becomes}")).with_hint(hint).with_source(cause)
    }
}
