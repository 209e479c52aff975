//! Calls that are ended from outside: one, all of a session, the one of a request.

use std::time::Duration;

use super::{
    super::{GuestError, process::Kill},
    registry::{Calls, END_DEADLINE},
    table::Known,
};
use crate::protocol::{ErrorCode, ProcessEnded};

impl Calls {
    /// Ends all calls of a session; how many there were.
    pub(in crate::guest) async fn end_session(&self, name: &str) -> u64 {
        let calls = self.sessions.of(name);
        // from the last on, so that none gets its turn meanwhile
        for call in calls.iter().rev() {
            call.kill(Kill::Cancelled, None);
        }
        let all = async {
            for call in &calls {
                call.wait().await;
            }
        };
        drop(tokio::time::timeout(self.settings.kill_grace + END_DEADLINE, all).await);
        calls.len() as u64
    }

    /// Ends one call and waits until it has; without `keep` it is forgotten then.
    ///
    /// # Errors
    /// When none is known, or it could not be ended in time.
    pub(in crate::guest) async fn end(
        &self,
        process_id: &str,
        grace: Option<Duration>,
        keep: bool,
    ) -> Result<ProcessEnded, GuestError> {
        let call = self.known(process_id)?;
        let lived = call.outcome().is_none();
        call.kill(Kill::Cancelled, grace);
        let limit = grace.unwrap_or(self.settings.kill_grace) + END_DEADLINE;
        let Ok(finished) = tokio::time::timeout(limit, call.wait()).await else {
            return Err(GuestError::new(ErrorCode::InternalError, "the call did not end in time")
                .hint("its program may sit in an uninterruptible system call; GET /processes/{id} tells more"));
        };
        if !keep {
            self.books().by_process.forget(process_id);
        }
        let (killed, survivors) = if lived { finished.toll() } else { (0, Vec::new()) };
        Ok(ProcessEnded { process_id: process_id.to_owned(), killed, survivors })
    }

    /// Ends the call with this request id and waits until it has; `false` where none is known.
    pub(in crate::guest) async fn cancel(&self, id: &str) -> bool {
        let known = self.books().by_request.named(id);
        match known {
            Known::Nothing | Known::Another => false,
            Known::Forgotten => true,
            Known::Call(call) => {
                call.kill(Kill::Cancelled, None);
                drop(tokio::time::timeout(self.settings.kill_grace + END_DEADLINE, call.wait()).await);
                true
            }
        }
    }
}
