//! `POST /exec`: run something in the guest at most once, also over connections that break.
//!
//! Implementation note: which agent may have run a call must be known before it is repeated, because an agent that
//! started since knows nothing of it and would run it again. Where an agent has been met before, its id goes with the
//! first try already, so no other one runs it. Where none has, the call went to one met since; if that was exactly
//! one, it is known too. Otherwise nothing is repeated.

use std::{
    fmt,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Method, header};

use super::{
    super::{AgentKind, Error, ErrorKind, Result},
    AgentClient,
    answer::Answer,
    http::{BodyError, read_body},
};
use crate::{
    protocol::{
        DEFAULT_TIMEOUT_SEC, ErrorCode, ExecRequest, ExecResult, HEADER_IF_AGENT, HEADER_REQUEST_ID, MAX_JSON_BODY,
        PATH_EXEC, TimeoutSec,
    },
    token::random_bytes,
};

/// The longest that any call is waited for: far over every agent's cap, and within what clocks can add.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The id of one call: 128 random bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate() -> Result<Self> {
        let bytes = random_bytes::<16>()
            .map_err(|error| Error::new(ErrorKind::Internal, "no id can be made for the call").with_source(error))?;
        Ok(Self(hex::encode(bytes)))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What came of a call that the agent carried out, whatever the program's exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutcome {
    /// The agent's answer.
    pub result: ExecResult,
    /// The bytes of standard output.
    pub stdout: Vec<u8>,
    /// The bytes of standard error.
    pub stderr: Vec<u8>,
}

impl ExecOutcome {
    fn of(result: ExecResult) -> Result<Self> {
        let bytes = |text: &str, encoded: Option<&String>| match encoded {
            Some(encoded) => STANDARD.decode(encoded).map_err(|error| {
                Error::new(ErrorKind::Internal, "the answer's output is not base64").with_source(error)
            }),
            None => Ok(text.as_bytes().to_vec()),
        };
        let stdout = bytes(&result.stdout, result.stdout_b64.as_ref())?;
        let stderr = bytes(&result.stderr, result.stderr_b64.as_ref())?;
        Ok(Self { result, stdout, stderr })
    }
}

/// How a try failed.
enum TryError {
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
    /// Runs a script or a program in the guest, at most once.
    ///
    /// # Errors
    /// When the agent could not do it; each condition has its [`ErrorKind`]. A program that fails or times out is no
    /// error. After [`ErrorKind::AgentLost`] it is not known whether it ran to its end.
    pub async fn exec(&self, request: &ExecRequest) -> Result<ExecOutcome> {
        self.exec_as(&RequestId::generate()?, request).await
    }

    /// As [`AgentClient::exec`], under an id by which [`AgentClient::cancel`] can end it.
    ///
    /// # Errors
    /// As [`AgentClient::exec`].
    pub async fn exec_as(&self, id: &RequestId, request: &ExecRequest) -> Result<ExecOutcome> {
        let body = serde_json::to_vec(request).map_err(|error| {
            Error::new(ErrorKind::Internal, "the call cannot be written as JSON").with_source(error)
        })?;
        if body.len() > MAX_JSON_BODY {
            let detail = format!("the call takes {} bytes and the agent reads {MAX_JSON_BODY}", body.len());
            return Err(Error::new(ErrorKind::Rejected, detail).with_hint("shorten the script or its stdin"));
        }
        let call = Call { client: self, id, body, deadline: Instant::now() + self.exec_deadline(request) };
        let met = self.agents.latest();
        let mut sent = call.send(met.as_deref()).await;
        let mut agent = met.clone();
        if let (Ok(answer), Some(_)) = (&sent, &met)
            && answer.is(ErrorCode::Conflict)
            && self.agents.latest() != met
        {
            // the id is new, so the clash is about the agent: another one than before, which ran nothing
            agent = self.agents.latest();
            sent = call.send(agent.as_deref()).await;
        }
        match sent {
            Ok(answer) => call.outcome(&answer),
            Err(TryError::Unsent(error) | TryError::Answered(error)) => Err(error),
            Err(TryError::TimedOut) => Err(call.overdue()),
            Err(TryError::Broken(cause)) => match agent.or_else(|| self.agents.only()) {
                Some(agent) if self.place.kind == AgentKind::Podlink => call.rejoin(&agent, cause).await,
                _ => Err(call.lost().with_source(cause)),
            },
        }
    }

    /// Longer than everything that the agent may spend, so that its answer is the one seen.
    fn exec_deadline(&self, request: &ExecRequest) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a minute")]
        let seconds = match request.timeout_sec {
            Some(TimeoutSec::Seconds(seconds)) => seconds,
            _ => DEFAULT_TIMEOUT_SEC as f64,
        };
        let timeout = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST).min(LONGEST);
        timeout + self.settings.queue_wait + self.settings.kill_margin
    }
}

/// One call, which may take several tries.
struct Call<'a> {
    client: &'a AgentClient,
    id: &'a RequestId,
    body: Vec<u8>,
    deadline: Instant,
}

impl Call<'_> {
    /// One try; with `agent` no other one runs it.
    async fn send(&self, agent: Option<&str>) -> Result<Answer, TryError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let mut request = self
            .client
            .request(Method::POST, PATH_EXEC, left)
            .header(header::CONTENT_TYPE, "application/json")
            .body(self.body.clone());
        if self.client.place.kind == AgentKind::Podlink {
            request = request.header(HEADER_REQUEST_ID, &self.id.0);
            if let Some(agent) = agent {
                request = request.header(HEADER_IF_AGENT, agent);
            }
        }
        let broken = |error: reqwest::Error| {
            if error.is_connect() || error.is_builder() {
                TryError::Unsent(self.client.sending_failed(&error))
            } else if error.is_timeout() {
                TryError::TimedOut
            } else {
                TryError::Broken(self.client.sending_failed(&error))
            }
        };
        let response = request.send().await.map_err(broken)?;
        let status = response.status();
        match read_body(response, self.client.settings.max_answer).await {
            Ok(body) => Ok(Answer { status, body }),
            Err(BodyError::Broken(error)) => Err(broken(error)),
            Err(BodyError::TooLarge) => Err(TryError::Answered(self.client.too_large())),
        }
    }

    fn outcome(&self, answer: &Answer) -> Result<ExecOutcome> {
        ExecOutcome::of(answer.parse::<ExecResult>(&self.client.place)?)
    }

    /// Joins the run that an earlier try may have started, while the agent keeps it.
    async fn rejoin(&self, agent: &str, cause: Error) -> Result<ExecOutcome> {
        let settings = &self.client.settings;
        let backoff = || {
            ExponentialBuilder::new()
                .with_min_delay(Duration::from_millis(50))
                .with_max_delay(Duration::from_millis(500))
                .without_max_times()
                .build()
        };
        let (mut broken_at, mut pauses, mut refused, mut cause) = (Instant::now(), backoff(), false, cause);
        loop {
            let pause = if refused { settings.refused_pause } else { pauses.next().unwrap_or(settings.refused_pause) };
            if broken_at.elapsed() + pause > settings.orphan_life || Instant::now() + pause > self.deadline {
                return Err(self.lost().with_source(cause));
            }
            tokio::time::sleep(pause).await;
            let tried_at = Instant::now();
            match self.send(Some(agent)).await {
                Ok(answer) if answer.is(ErrorCode::Conflict) => {
                    return Err(Error::new(
                        ErrorKind::AgentLost,
                        "the agent restarted while the call ran; whether the script finished is not known",
                    ));
                }
                Ok(answer) => return self.outcome(&answer),
                Err(TryError::TimedOut) => return Err(self.overdue()),
                Err(TryError::Answered(error)) => return Err(error),
                Err(TryError::Broken(error)) => {
                    if tried_at.elapsed() > settings.orphan_life {
                        pauses = backoff(); // it had been joined for a while
                    }
                    // joined or not, it is from here on that the agent may count it as an orphan
                    if tried_at.elapsed() > Duration::from_secs(1) {
                        broken_at = Instant::now();
                    }
                    (refused, cause) = (false, error);
                }
                Err(TryError::Unsent(error)) => match error.kind() {
                    ErrorKind::Refused if refused => return Err(self.lost().with_source(error)),
                    ErrorKind::Refused => (refused, cause) = (true, error),
                    ErrorKind::Reset | ErrorKind::Silent => (refused, cause) = (false, error),
                    // whoever answers now is not the agent that took the call
                    _ => return Err(self.lost().with_source(error)),
                },
            }
        }
    }

    fn lost(&self) -> Error {
        let pod = &self.client.place.pod_flag;
        Error::new(
            ErrorKind::AgentLost,
            "the agent went away while the call ran; whether the script finished is not known",
        )
        .with_hint(format!("look at `podlink pod status{pod}`; `podlink pod up{pod}` starts the pod again"))
    }

    fn overdue(&self) -> Error {
        let pod = &self.client.place.pod_flag;
        Error::new(
            ErrorKind::AgentLost,
            "the agent did not answer even after the call's own time-out; whether the script finished is not known",
        )
        .with_hint(format!("look at `podlink pod status{pod}`"))
    }
}
