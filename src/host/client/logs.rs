//! The guest's logs, line by line.

use std::fmt;

use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient,
    answer::Answer,
    frames::garbled,
    health::Seen,
    http::{BodyError, read_body},
    patience::{GivenUp, Patience},
};
use crate::protocol::{GuestLog, LogLine, PATH_LOGS};

/// Most bytes of a line: several times the agent's own bound, escaped.
const LONGEST: usize = 4 * 1024 * 1024;

/// What of a log is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestLogRequest {
    /// Which log.
    pub log: GuestLog,
    /// Go on with what is added.
    pub follow: bool,
    /// No more than this many of the last lines of what is there.
    pub tail: Option<u32>,
    /// Nothing that is older.
    pub since: Option<jiff::Timestamp>,
}

/// The lines of a log as they come. Nothing is read ahead.
pub struct GuestLogStream {
    client: AgentClient,
    response: Response,
    patience: Patience,
    /// What has come of lines that have not been handed out.
    buffer: Vec<u8>,
    ended: bool,
}

impl fmt::Debug for GuestLogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestLogStream").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl AgentClient {
    /// A log of the guest.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the agent knows of no such log; else as [`AgentClient::whoami`].
    pub async fn guest_log(&self, request: GuestLogRequest) -> Result<GuestLogStream> {
        self.podlinks_own("hand out logs")?;
        let tail = request.tail.map(|tail| format!("&tail={tail}")).unwrap_or_default();
        let since = request.since.map(|since| format!("&since={since}")).unwrap_or_default();
        let path = format!("{PATH_LOGS}?source={}&follow={}{tail}{since}", request.log.as_str(), request.follow);
        let deadline = Instant::now() + self.settings.call_deadline;
        let asking = async {
            let response = self.authorized(Method::GET, &path).send().await;
            let response = response.map_err(|error| self.sending_failed(&error))?;
            let status = response.status();
            if status == StatusCode::OK {
                return Ok(response);
            }
            let body = match read_body(response, self.settings.max_answer).await {
                Ok(body) => body,
                Err(BodyError::Broken(error)) => return Err(self.sending_failed(&error)),
                Err(BodyError::TooLarge) => return Err(self.too_large()),
            };
            Answer { status, body }.parse::<serde_json::Value>(&self.place)?;
            Err(garbled("something else than a log"))
        };
        let response = timeout_at(deadline, asking).await.unwrap_or_else(|_| Err(self.place.error(&Seen::Silent)))?;
        let patience = Patience::new(self.settings.stream_keep_alive, None);
        Ok(GuestLogStream { client: self.clone(), response, patience, buffer: Vec::new(), ended: false })
    }
}

impl GuestLogStream {
    /// The next line; `None` at the end. The call to it can be dropped without loss.
    ///
    /// # Errors
    /// Where the connection broke, or nothing was heard of the agent for too long.
    pub async fn next(&mut self) -> Result<Option<LogLine>> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if line.len() > 1 {
                    let line = serde_json::from_slice(&line);
                    return line.map(Some).map_err(|error| garbled("a line that cannot be read").with_source(error));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.patience.wait(self.response.chunk()).await {
                Ok(Ok(Some(chunk))) if self.buffer.len() + chunk.len() <= LONGEST => {
                    self.buffer.extend_from_slice(&chunk);
                }
                Ok(Ok(Some(_))) => return Err(garbled("a line that is far too long")),
                Ok(Ok(None)) => self.ended = true,
                Ok(Err(error)) => return Err(self.client.sending_failed(&error)),
                Err(GivenUp::Silent | GivenUp::Overdue) => {
                    return Err(Error::new(ErrorKind::Silent, "no sign of life came for too long"));
                }
            }
        }
    }
}
