//! When and how often something is tried again on the agent that has it.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient,
    failed_try::TryError,
};

/// A try that took longer had been let in by the agent: from its end on the agent counts anew.
const LET_IN: Duration = Duration::from_secs(1);

/// The tries after a connection broke, for as long as the agent keeps what they ask for.
#[derive(Debug)]
pub(super) struct Retry<'a> {
    client: &'a AgentClient,
    /// How long the agent keeps it without a caller.
    life: Duration,
    deadline: Option<Instant>,
    broken_at: Instant,
    tried_at: Instant,
    pauses: ExponentialBackoff,
    /// Whether the last try met nobody.
    refused: bool,
    /// Whether the next try is made without a pause.
    at_once: bool,
    cause: Error,
}

fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_millis(500))
        .without_max_times()
        .build()
}

impl<'a> Retry<'a> {
    pub(super) fn new(client: &'a AgentClient, life: Duration, deadline: Option<Instant>, cause: Error) -> Self {
        let now = Instant::now();
        Self {
            client,
            life,
            deadline,
            broken_at: now,
            tried_at: now,
            pauses: backoff(),
            refused: false,
            at_once: false,
            cause,
        }
    }

    /// As one that has been broken since; where that is `None`, what broke had just brought something: the first try is
    /// made at once.
    pub(super) const fn since(mut self, broken_at: Option<Instant>) -> Self {
        match broken_at {
            Some(broken_at) => self.broken_at = broken_at,
            None => self.at_once = true,
        }
        self
    }

    /// Waits until the next try, or says that there is none.
    pub(super) async fn pause(&mut self) -> Result<()> {
        if std::mem::take(&mut self.at_once) {
            return Ok(());
        }
        let refused_pause = self.client.settings.refused_pause;
        let pause = if self.refused { refused_pause } else { self.pauses.next().unwrap_or(refused_pause) };
        let late = self.deadline.is_some_and(|deadline| Instant::now() + pause > deadline);
        if self.broken_at.elapsed() + pause > self.life || late {
            let cause = std::mem::replace(&mut self.cause, Error::new(ErrorKind::AgentLost, String::new()));
            return Err(self.client.lost().with_source(cause));
        }
        tokio::time::sleep(pause).await;
        self.tried_at = Instant::now();
        Ok(())
    }

    /// Takes note of a try that failed; the error is the last word.
    pub(super) fn failed(&mut self, error: TryError) -> Result<()> {
        match error {
            TryError::TimedOut => return Err(self.client.overdue()),
            TryError::Answered(error) => return Err(error),
            TryError::Broken(error) => {
                if self.tried_at.elapsed() > self.life {
                    self.pauses = backoff(); // it had been joined for a while
                }
                // joined or not, it is from here on that the agent may count it as an orphan
                if self.tried_at.elapsed() > LET_IN {
                    self.broken_at = Instant::now();
                }
                (self.refused, self.cause) = (false, error);
            }
            TryError::Unsent(error) => match error.kind() {
                ErrorKind::Refused if self.refused => return Err(self.client.lost().with_source(error)),
                ErrorKind::Refused => (self.refused, self.cause) = (true, error),
                ErrorKind::Reset | ErrorKind::Silent => (self.refused, self.cause) = (false, error),
                // whoever answers now is not the agent that took the call
                _ => return Err(self.client.lost().with_source(error)),
            },
        }
        Ok(())
    }
}
