//! `POST /exec`: run something in the guest and have all it wrote at the end.

use std::{
    fmt,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient,
    once::{Form, Once, Reply},
};
use crate::{
    protocol::{DEFAULT_TIMEOUT_SEC, ExecRequest, ExecResult, TimeoutSec},
    token::random_bytes,
};

/// The longest that any call is waited for: far over every agent's cap, and within what clocks can add.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The id of one call: 128 random bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub(super) String);

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

impl AgentClient {
    /// Runs a script or a program in the guest, at most once.
    ///
    /// # Errors
    /// When the agent could not do it; each condition has its [`ErrorKind`]. A program that fails or times out is no
    /// error. After [`ErrorKind::AgentLost`] it is not known whether it ran to its end.
    ///
    /// # Example
    /// ```
    /// # use podlink::{guest::InProcessAgent, host::{AgentClient, ClientSettings}};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = InProcessAgent::start().await?;
    /// # let client = AgentClient::new(agent.address(), agent.token().clone(), ClientSettings::DEFAULT)?;
    /// use podlink::protocol::ExecRequest;
    ///
    /// let outcome = client.exec(&ExecRequest::script("echo ok; exit 7")).await?;
    /// assert_eq!(outcome.result.rc, 7);
    /// assert_eq!(outcome.stdout, b"ok\n");
    /// # agent.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn exec(&self, request: &ExecRequest) -> Result<ExecOutcome> {
        self.exec_as(&RequestId::generate()?, request).await
    }

    /// As [`AgentClient::exec`], under an id by which [`AgentClient::cancel`] can end it.
    ///
    /// # Errors
    /// As [`AgentClient::exec`].
    pub async fn exec_as(&self, id: &RequestId, request: &ExecRequest) -> Result<ExecOutcome> {
        let request = &self.in_its_terms(request)?;
        let begun = Instant::now();
        let deadline = begun + self.exec_deadline(request);
        let call = Once { client: self, id, body: Self::exec_body(request)?, form: Form::Whole, deadline };
        match call.run().await? {
            Reply::Whole(answer) => {
                let mut result = answer.parse::<ExecResult>(&self.place)?;
                self.in_our_terms(&mut result, timeout(request), begun.elapsed());
                ExecOutcome::of(result)
            }
            Reply::Stream(_) => Err(Error::new(ErrorKind::Internal, "a stream came that was not asked for")),
        }
    }

    /// Longer than everything that the agent may spend, so that its answer is the one seen.
    fn exec_deadline(&self, request: &ExecRequest) -> Duration {
        timeout(request) + self.start_wait(request)
    }
}

/// The time-out of a call; 0 where it asks for none.
pub(super) fn timeout(request: &ExecRequest) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "a minute")]
    let seconds = match request.timeout_sec {
        Some(TimeoutSec::Seconds(seconds)) => seconds,
        _ => DEFAULT_TIMEOUT_SEC as f64,
    };
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST).min(LONGEST)
}
