//! Output as it comes, over connections that break: `exec_stream`, and a job's output.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use reqwest::{Method, Response};

use super::{
    super::{AgentKind, Error, ErrorKind, Result},
    AgentClient, RequestId,
    answer::error_of,
    exec::timeout,
    frames::{Live, Part, garbled},
    http::segment,
    once::{Form, Once, Reply},
    patience::{GivenUp, Patience},
    retry::Retry,
};
use crate::protocol::{ErrorCode, ExecRequest, ExecResult, Gap, HEADER_PROCESS_ID, PATH_PROCESSES, StreamEnd};

/// For the end of an answer's body behind its last frame, which comes with it: the connection can be used again then.
const TAIL: Duration = Duration::from_millis(100);

/// What happens in a call that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs; the first event. An agent that gives its calls no names leaves this one empty.
    Started {
        /// The agent's name for it.
        process_id: String,
    },
    /// Bytes of standard output.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// Output that the agent does not have any more.
    Gap(Gap),
    /// It has ended; the last event. The result is without the output.
    Exit(ExecResult),
}

/// A call's output as it comes, and its end.
///
/// A connection that breaks is made anew and the output taken up where it was cut. Nothing is read ahead: who does not
/// ask for the next event slows the program down, or, with a detached one, loses what the agent cannot keep, and is told
/// so by a [`ExecEvent::Gap`]. Dropped, the call counts as one without a caller and is killed a few seconds later,
/// unless it is detached.
pub struct ExecStream {
    client: AgentClient,
    process_id: String,
    offset: u64,
    follow: bool,
    /// How long the agent keeps the call after a connection to it broke.
    life: Duration,
    patience: Patience,
    /// Since when nothing has come, once a connection broke.
    broken_at: Option<Instant>,
    /// What was lost before the very beginning is not to be told.
    from_oldest: bool,
    told_start: bool,
    source: Source,
}

enum Source {
    /// A connection.
    Live(Live),
    /// The next one.
    Resuming(Pin<Box<dyn Future<Output = Result<Live>> + Send>>),
    /// The last frame has come, and this is what it says.
    Ending(Response, Option<Result<Option<ExecEvent>>>),
    /// A whole answer.
    Whole(VecDeque<ExecEvent>),
    /// Nothing comes any more.
    Done,
}

impl fmt::Debug for ExecStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecStream")
            .field("process_id", &self.process_id)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl AgentClient {
    /// Runs a script or a program in the guest, at most once, and hands out its output as it comes.
    ///
    /// Returns once the program runs. An agent that cannot stream is asked for all of it at once.
    ///
    /// # Errors
    /// As [`AgentClient::exec`].
    ///
    /// # Example
    /// ```
    /// # use podlink::{guest::InProcessAgent, host::{AgentClient, ClientSettings}};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = InProcessAgent::start().await?;
    /// # let client = AgentClient::new(agent.address(), agent.token().clone(), ClientSettings::DEFAULT)?;
    /// use podlink::{host::ExecEvent, protocol::ExecRequest};
    ///
    /// let request = ExecRequest { argv: Some(vec!["seq".into(), "1".into(), "100000".into()]), ..ExecRequest::default() };
    /// let mut stream = client.exec_stream(&request).await?;
    /// let (mut bytes, mut rc) = (0, None);
    /// while let Some(event) = stream.next().await {
    ///     match event? {
    ///         ExecEvent::Stdout(output) => bytes += output.len(),
    ///         ExecEvent::Exit(result) => rc = Some(result.rc),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!((bytes, rc), (588_895, Some(0)));
    /// # agent.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn exec_stream(&self, request: &ExecRequest) -> Result<ExecStream> {
        self.exec_stream_as(&RequestId::generate()?, request).await
    }

    /// As [`AgentClient::exec_stream`], under an id by which [`AgentClient::cancel`] can end it.
    ///
    /// # Errors
    /// As [`AgentClient::exec`].
    pub async fn exec_stream_as(&self, id: &RequestId, request: &ExecRequest) -> Result<ExecStream> {
        if self.place.kind == AgentKind::Winpodx {
            if request.open_stdin {
                return Err(self.unsupported("keep a program's stdin open"));
            }
            let outcome = self.exec_as(id, request).await?;
            return Ok(ExecStream::of_whole(self, outcome.result, outcome.stdout, outcome.stderr));
        }
        let deadline = Instant::now() + self.start_wait(request);
        let call = Once { client: self, id, body: Self::exec_body(request)?, form: Form::Frames, deadline };
        match call.run().await? {
            Reply::Stream(response) => {
                let process_id = response.headers().get(HEADER_PROCESS_ID).and_then(|value| value.to_str().ok());
                let process_id =
                    process_id.ok_or_else(|| garbled("a stream that does not name its process"))?.to_owned();
                let patience = Patience::new(self.settings.stream_keep_alive, self.stream_bound(request));
                let life = self.settings.orphan_life;
                let source = Source::Live(Live::new(response));
                Ok(ExecStream { life, patience, source, ..ExecStream::over(self, process_id) })
            }
            Reply::Whole(answer) => match answer.parse::<serde_json::Value>(&self.place) {
                Err(error) => Err(error),
                Ok(_) => Err(self.unsupported("stream a call's output")),
            },
        }
    }

    /// Longer than all that a streamed call may take, where that has a bound.
    fn stream_bound(&self, request: &ExecRequest) -> Option<Duration> {
        let timeout = timeout(request);
        (!timeout.is_zero()).then(|| timeout + self.settings.kill_margin)
    }

    /// The agent cannot do this.
    pub(super) fn unsupported(&self, what: &str) -> Error {
        let agent = match self.place.kind {
            AgentKind::Podlink => "this agent",
            AgentKind::Winpodx => "the agent of winpodx",
        };
        Error::new(ErrorKind::Unsupported, format!("{agent} cannot {what}"))
            .with_hint("podlink's own agent, at the version of this program, can")
    }
}

impl ExecStream {
    /// Nothing yet.
    fn over(client: &AgentClient, process_id: String) -> Self {
        Self {
            client: client.clone(),
            process_id,
            offset: 0,
            follow: true,
            life: client.settings.job_life,
            patience: Patience::new(client.settings.stream_keep_alive, None),
            broken_at: None,
            from_oldest: false,
            told_start: false,
            source: Source::Done,
        }
    }

    /// The events of a call that has ended.
    fn of_whole(client: &AgentClient, mut result: ExecResult, stdout: Vec<u8>, stderr: Vec<u8>) -> Self {
        (result.stdout, result.stderr, result.stdout_b64, result.stderr_b64) = Default::default();
        let mut events = VecDeque::new();
        if !stdout.is_empty() {
            events.push_back(ExecEvent::Stdout(stdout.into()));
        }
        if !stderr.is_empty() {
            events.push_back(ExecEvent::Stderr(stderr.into()));
        }
        let process_id = result.process_id.clone();
        events.push_back(ExecEvent::Exit(result));
        Self { source: Source::Whole(events), ..Self::over(client, process_id) }
    }

    /// The output that the agent has of a call, from `offset` or from the oldest that it keeps.
    pub(super) async fn of_output(
        client: &AgentClient,
        process_id: &str,
        offset: Option<u64>,
        follow: bool,
    ) -> Result<Self> {
        let stream = Self {
            offset: offset.unwrap_or(0),
            follow,
            from_oldest: offset.is_none(),
            ..Self::over(client, process_id.to_owned())
        };
        match client.ask(&stream.path(), Form::Frames).await? {
            Reply::Stream(response) => Ok(Self { source: Source::Live(Live::new(response)), ..stream }),
            Reply::Whole(answer) => match answer.parse::<serde_json::Value>(&client.place) {
                Err(error) => Err(error),
                Ok(_) => Err(client.unsupported("stream a call's output")),
            },
        }
    }

    fn path(&self) -> String {
        let id = segment(&self.process_id);
        format!("{PATH_PROCESSES}/{id}/output?offset={}&follow={}", self.offset, self.follow)
    }

    /// The agent's name for the call.
    pub fn process_id(&self) -> &str {
        &self.process_id
    }

    /// How far the output has been handed out: where [`Job::output`](super::Job::output) can take it up.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event; `None` after the last one or an error. The call to it can be dropped without loss.
    ///
    /// A stream without its [`ExecEvent::Exit`] is one of a call that runs on, asked for without following it.
    ///
    /// # Errors
    /// [`ErrorKind::AgentLost`] where the agent went away or restarted, and each other end of a call that is none of
    /// the program's own.
    pub async fn next(&mut self) -> Option<Result<ExecEvent>> {
        if !self.told_start {
            self.told_start = true;
            return Some(Ok(ExecEvent::Started { process_id: self.process_id.clone() }));
        }
        let next = self.step().await;
        match next {
            Ok(Some(event)) => {
                if let ExecEvent::Exit(_) = event {
                    self.source = Source::Done;
                }
                Some(Ok(event))
            }
            Ok(None) => {
                self.source = Source::Done;
                None
            }
            Err(error) => {
                self.source = Source::Done;
                Some(Err(error))
            }
        }
    }

    async fn step(&mut self) -> Result<Option<ExecEvent>> {
        loop {
            let cause = match &mut self.source {
                Source::Done => return Ok(None),
                Source::Ending(response, last) => {
                    drop(tokio::time::timeout(TAIL, response.chunk()).await);
                    return last.take().unwrap_or(Ok(None));
                }
                Source::Whole(events) => {
                    let event = events.pop_front();
                    if let Some(ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes)) = &event {
                        self.offset += bytes.len() as u64;
                    }
                    return Ok(event);
                }
                Source::Resuming(next) => {
                    self.source = Source::Live(next.await?);
                    continue;
                }
                Source::Live(live) => {
                    if let Some(part) = live.part()? {
                        self.broken_at = None;
                        if let Some(event) = self.event(part)? {
                            return Ok(Some(event));
                        }
                        continue;
                    }
                    match self.patience.wait(live.response.chunk()).await {
                        Ok(Ok(Some(chunk))) => {
                            live.chunk = chunk;
                            continue;
                        }
                        Ok(Ok(None)) => Error::new(ErrorKind::Reset, "the stream ended in the middle"),
                        Ok(Err(error)) => self.client.sending_failed(&error),
                        Err(GivenUp::Silent) => Error::new(ErrorKind::Silent, "no sign of life came for too long"),
                        Err(GivenUp::Overdue) => return Err(self.client.overdue()),
                    }
                }
            };
            self.resume(cause);
        }
    }

    /// The event that a part of a frame is, where it is one.
    fn event(&mut self, part: Part) -> Result<Option<ExecEvent>> {
        Ok(match part {
            Part::Stdout(bytes) | Part::Stderr(bytes) if bytes.is_empty() => None,
            Part::Stdout(bytes) => {
                self.offset += bytes.len() as u64;
                Some(ExecEvent::Stdout(bytes))
            }
            Part::Stderr(bytes) => {
                self.offset += bytes.len() as u64;
                Some(ExecEvent::Stderr(bytes))
            }
            Part::Gap(json) => {
                let gap: Gap = serde_json::from_slice(&json)
                    .map_err(|error| garbled("a gap that cannot be read").with_source(error))?;
                if gap.from != self.offset || gap.to <= gap.from {
                    return Err(garbled("a gap at another place than the output stands"));
                }
                self.offset = gap.to;
                let asked_for = !std::mem::take(&mut self.from_oldest) || gap.from > 0;
                asked_for.then_some(ExecEvent::Gap(gap))
            }
            Part::End(json) => {
                let end: StreamEnd = serde_json::from_slice(&json)
                    .map_err(|error| garbled("an end that cannot be read").with_source(error))?;
                let last = match end {
                    StreamEnd::Result(result) => Ok(Some(ExecEvent::Exit(*result))),
                    StreamEnd::Error(body) => Err(error_of(*body, &self.client.place)),
                    StreamEnd::Running(_) => Ok(None),
                };
                if let Source::Live(live) = std::mem::replace(&mut self.source, Source::Done) {
                    self.source = Source::Ending(live.response, Some(last));
                }
                None
            }
        })
    }

    /// Begins to take the output up again where it was cut.
    fn resume(&mut self, cause: Error) {
        let (client, path, life) = (self.client.clone(), self.path(), self.life);
        let broken_at = self.broken_at;
        self.broken_at.get_or_insert_with(Instant::now);
        self.patience.rest();
        self.source = Source::Resuming(Box::pin(async move {
            let mut retry = Retry::new(&client, life, None, cause).since(broken_at);
            loop {
                retry.pause().await?;
                let deadline = Instant::now() + client.settings.call_deadline;
                match client.attempt(client.authorized(Method::GET, &path), Form::Frames, deadline).await {
                    Ok(Reply::Stream(response)) => return Ok(Live::new(response)),
                    // it is of another agent, or the one that took the call has given it up
                    Ok(Reply::Whole(answer)) if answer.is(ErrorCode::NotFound) => {
                        return Err(super::failed_try::restarted());
                    }
                    Ok(Reply::Whole(answer)) => {
                        answer.parse::<serde_json::Value>(&client.place)?;
                        return Err(garbled("something else than the output"));
                    }
                    Err(error) => retry.failed(error)?,
                }
            }
        }));
    }
}
