//! One `POST /exec`, repeated over connections that break, run at most once.
//!
//! Implementation note: which agent may have run a call must be known before it is repeated, because an agent that
//! started since knows nothing of it and would run it again. Where an agent has been met before, its id goes with the
//! first try already, so no other one runs it. Where none has, the call went to one met since; if that was exactly
//! one, it is known too. Otherwise nothing is repeated.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};

use super::{
    super::{AgentKind, Error, ErrorKind, Result},
    AgentClient, RequestId,
    answer::Answer,
    failed_try::{TryError, restarted},
    http::{BodyError, read_body},
    retry::Retry,
};
use crate::protocol::{
    ErrorCode, ExecRequest, HEADER_IF_AGENT, HEADER_REQUEST_ID, MAX_JSON_BODY, MEDIA_MULTIPLEXED, PATH_EXEC,
};

/// What came back.
#[derive(Debug)]
pub(super) enum Reply {
    /// A whole answer.
    Whole(Answer),
    /// The head of a streamed one.
    Stream(Response),
}

impl Reply {
    fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Whole(answer) if answer.is(code))
    }
}

/// How the answer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As one JSON object; the deadline is for all of it.
    Whole,
    /// As frames; the deadline is for the head.
    Frames,
}

/// One call, which may take several tries.
#[derive(Debug)]
pub(super) struct Once<'a> {
    pub(super) client: &'a AgentClient,
    pub(super) id: &'a RequestId,
    pub(super) body: Bytes,
    pub(super) form: Form,
    pub(super) deadline: Instant,
}

impl Once<'_> {
    /// The agent's answer, whatever it is.
    pub(super) async fn run(&self) -> Result<Reply> {
        let agents = &self.client.agents;
        let met = agents.latest();
        let mut sent = self.send(met.as_deref()).await;
        let mut agent = met.clone();
        if let (Ok(reply), Some(_)) = (&sent, &met)
            && reply.is(ErrorCode::Conflict)
            && agents.latest() != met
        {
            // the id is new, so the clash is about the agent: another one than before, which ran nothing
            agent = agents.latest();
            sent = self.send(agent.as_deref()).await;
        }
        match sent {
            Ok(reply) => Ok(reply),
            Err(TryError::Unsent(error) | TryError::Answered(error)) => Err(error),
            Err(TryError::TimedOut) => Err(self.client.overdue()),
            Err(TryError::Broken(cause)) => match agent.or_else(|| agents.only()) {
                Some(agent) if self.client.place.kind == AgentKind::Podlink => self.rejoin(&agent, cause).await,
                _ => Err(self.client.lost().with_source(cause)),
            },
        }
    }

    /// One try; with `agent` no other one runs it.
    async fn send(&self, agent: Option<&str>) -> Result<Reply, TryError> {
        let mut request = self
            .client
            .authorized(Method::POST, PATH_EXEC)
            .header(header::CONTENT_TYPE, "application/json")
            .body(self.body.clone());
        if self.client.place.kind == AgentKind::Podlink {
            request = request.header(HEADER_REQUEST_ID, &self.id.0);
            if let Some(agent) = agent {
                request = request.header(HEADER_IF_AGENT, agent);
            }
        }
        self.client.attempt(request, self.form, self.deadline).await
    }

    /// Joins the run that an earlier try may have started, while the agent keeps it.
    async fn rejoin(&self, agent: &str, cause: Error) -> Result<Reply> {
        let mut retry = Retry::new(self.client, self.client.settings.orphan_life, Some(self.deadline), cause);
        loop {
            retry.pause().await?;
            match self.send(Some(agent)).await {
                Ok(reply) if reply.is(ErrorCode::Conflict) => return Err(restarted()),
                Ok(reply) => return Ok(reply),
                Err(error) => retry.failed(error)?,
            }
        }
    }
}

impl AgentClient {
    /// One request, and its answer in this form.
    pub(super) async fn attempt(
        &self,
        request: RequestBuilder,
        form: Form,
        deadline: Instant,
    ) -> Result<Reply, TryError> {
        let request = match form {
            Form::Whole => request,
            Form::Frames => request.header(header::ACCEPT, MEDIA_MULTIPLEXED),
        };
        let exchange = async {
            let response = request.send().await.map_err(|error| self.try_error(&error))?;
            let status = response.status();
            if form == Form::Frames && status == StatusCode::OK && is_frames(&response) {
                return Ok(Reply::Stream(response));
            }
            match read_body(response, self.settings.max_answer).await {
                Ok(body) => Ok(Reply::Whole(Answer { status, body })),
                Err(BodyError::Broken(error)) => Err(self.try_error(&error)),
                Err(BodyError::TooLarge) => Err(TryError::Answered(self.too_large())),
            }
        };
        tokio::time::timeout_at(deadline.into(), exchange).await.unwrap_or(Err(TryError::TimedOut))
    }

    fn try_error(&self, error: &reqwest::Error) -> TryError {
        let said = self.sending_failed(error);
        if error.is_connect() || error.is_builder() { TryError::Unsent(said) } else { TryError::Broken(said) }
    }

    /// The body of a call.
    pub(super) fn exec_body(request: &impl serde::Serialize) -> Result<Bytes> {
        let body = serde_json::to_vec(request).map_err(|error| {
            Error::new(ErrorKind::Internal, "the call cannot be written as JSON").with_source(error)
        })?;
        if body.len() > MAX_JSON_BODY {
            let detail = format!("the call takes {} bytes and the agent reads {MAX_JSON_BODY}", body.len());
            return Err(Error::new(ErrorKind::Rejected, detail).with_hint("shorten the script or its stdin"));
        }
        Ok(body.into())
    }

    /// The most that passes before the program of a call runs.
    pub(super) fn start_wait(&self, request: &ExecRequest) -> Duration {
        let session = if request.session.is_some() { self.settings.session_wait } else { Duration::ZERO };
        session + self.settings.queue_wait + self.settings.kill_margin
    }
}

fn is_frames(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(MEDIA_MULTIPLEXED))
    })
}
