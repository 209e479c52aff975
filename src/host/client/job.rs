//! A call that runs on without its caller: begun by `spawn`, or one of which only the name is known.

use std::time::{Duration, Instant};

use reqwest::{Method, header};

use super::{
    super::{AgentKind, Error, ErrorKind, Result},
    AgentClient, ExecEvent, ExecStream, RequestId,
    answer::error_of,
    failed_try::TryError,
    http::segment,
    once::{Form, Once, Reply},
};
use crate::protocol::{
    ExecRequest, ExecResult, PATH_PROCESSES, ProcessEnded, ProcessInfo, SignalRequest, Signalled, Started,
    StdinAccepted,
};

/// What is written to a program's stdin in one request.
const STDIN_PIECE: usize = 256 * 1024;

/// One call that the agent knows, by its name. Dropping it does nothing to the call.
#[derive(Debug, Clone)]
pub struct Job {
    client: AgentClient,
    process_id: String,
}

impl AgentClient {
    /// Runs a script or a program that needs no caller, at most once; returns once it runs.
    ///
    /// It is a detached call, whatever the request says, and lives as long as the agent.
    ///
    /// # Errors
    /// As [`AgentClient::exec`]; [`ErrorKind::Unsupported`] where the pod's agent is not podlink's own.
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
    /// let argv = ["sh", "-c", "echo begun; read line; echo got $line"].map(String::from).to_vec();
    /// let job = client.spawn(&ExecRequest { argv: Some(argv), open_stdin: true, ..ExecRequest::default() }).await?;
    /// // anybody who knows its name can go on with it
    /// let job = client.job(job.process_id());
    /// job.write_stdin(b"it\n").await?;
    /// assert_eq!(job.wait().await?.rc, 0);
    ///
    /// let mut output = job.output(Some("begun\n".len() as u64), true).await?;
    /// let mut text = String::new();
    /// while let Some(event) = output.next().await {
    ///     if let ExecEvent::Stdout(bytes) = event? {
    ///         text.push_str(std::str::from_utf8(&bytes)?);
    ///     }
    /// }
    /// assert_eq!(text, "got it\n");
    /// # agent.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn spawn(&self, request: &ExecRequest) -> Result<Job> {
        self.spawn_as(&RequestId::generate()?, request).await
    }

    /// As [`AgentClient::spawn`], under an id by which [`AgentClient::cancel`] can end it.
    ///
    /// # Errors
    /// As [`AgentClient::spawn`].
    pub async fn spawn_as(&self, id: &RequestId, request: &ExecRequest) -> Result<Job> {
        self.podlinks_own("run a program without its caller")?;
        let request = ExecRequest { detach: true, ..request.clone() };
        let deadline = Instant::now() + self.start_wait(&request);
        let call = Once { client: self, id, body: Self::exec_body(&request)?, form: Form::Whole, deadline };
        match call.run().await? {
            Reply::Whole(answer) if answer.status == reqwest::StatusCode::OK => {
                Err(self.unsupported("run a program without its caller: it has run this one to its end"))
            }
            Reply::Whole(answer) => Ok(self.job(&answer.parse::<Started>(&self.place)?.process_id)),
            Reply::Stream(_) => Err(Error::new(ErrorKind::Internal, "a stream came that was not asked for")),
        }
    }

    /// A call by the agent's name for it; whether there is one shows when something is asked of it.
    pub fn job(&self, process_id: &str) -> Job {
        Job { client: self.clone(), process_id: process_id.to_owned() }
    }

    /// An error where the pod's agent is not podlink's own.
    pub(super) fn podlinks_own(&self, what: &str) -> Result<()> {
        match self.place.kind {
            AgentKind::Podlink => Ok(()),
            AgentKind::Winpodx => Err(self.unsupported(what)),
        }
    }
}

impl Job {
    /// The agent's name for the call.
    pub fn process_id(&self) -> &str {
        &self.process_id
    }

    /// How it stands with it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the agent does not know it: another one than that which began it, or an hour
    /// after its end.
    pub async fn info(&self) -> Result<ProcessInfo> {
        self.client.podlinks_own("tell of its calls")?;
        self.client.get(&self.path("")).await?.parse(&self.client.place)
    }

    /// Waits for its end, over connections that break, for as long as the agent lives.
    ///
    /// # Errors
    /// As [`ExecStream::next`].
    pub async fn wait(&self) -> Result<ExecResult> {
        let info = self.info().await?;
        if let Some(result) = info.result {
            return Ok(*result);
        }
        if let Some(body) = info.error {
            return Err(error_of(*body, &self.client.place));
        }
        let mut output = self.output(Some(info.output_bytes), true).await?;
        while let Some(event) = output.next().await {
            if let ExecEvent::Exit(result) = event? {
                return Ok(result);
            }
        }
        Err(self.client.lost())
    }

    /// Its output from `offset`, or from the oldest that the agent keeps; with `follow` until its end.
    ///
    /// # Errors
    /// As [`Job::info`]; [`ErrorKind::Rejected`] where no output is there to be had: an offset that has not been
    /// reached, or a call whose output is its answer.
    pub async fn output(&self, offset: Option<u64>, follow: bool) -> Result<ExecStream> {
        self.client.podlinks_own("hand out a call's output later")?;
        ExecStream::of_output(&self.client, &self.process_id, offset, follow).await
    }

    /// Ends it with all its processes, and has the agent forget it.
    ///
    /// They are asked to end and have `grace` to do so, or the agent's own default.
    ///
    /// # Errors
    /// As [`Job::info`].
    pub async fn kill(&self, grace: Option<Duration>) -> Result<ProcessEnded> {
        self.end(grace, "?").await
    }

    /// As [`Job::kill`], and its end and output can be asked for still.
    ///
    /// # Errors
    /// As [`Job::info`].
    pub async fn kill_and_keep(&self, grace: Option<Duration>) -> Result<ProcessEnded> {
        self.end(grace, "?keep=true&").await
    }

    async fn end(&self, grace: Option<Duration>, query: &str) -> Result<ProcessEnded> {
        self.client.podlinks_own("end a call by its name")?;
        let grace_ms = grace.map_or_else(String::new, |grace| format!("grace_ms={}", grace.as_millis()));
        let path = self.path(&format!("{query}{grace_ms}"));
        let settings = &self.client.settings;
        let within = settings.call_deadline + settings.kill_margin + grace.unwrap_or_default();
        self.client.change(self.client.authorized(Method::DELETE, path.trim_end_matches(['?', '&'])), within).await
    }

    /// Sends a signal to its program, or with `tree` to all its processes; says to how many.
    ///
    /// # Errors
    /// As [`Job::info`].
    pub async fn signal(&self, name: &str, tree: bool) -> Result<u64> {
        self.client.podlinks_own("send signals")?;
        let body = SignalRequest { signal: name.to_owned(), tree };
        let request = self.client.authorized(Method::POST, &self.path("/signal")).json(&body);
        Ok(self.client.change::<Signalled>(request, self.client.settings.call_deadline).await?.signalled)
    }

    /// Writes to its stdin, where that was kept open; returns once its program's pipe has taken all of it, and says how
    /// much that was.
    ///
    /// # Errors
    /// [`ErrorKind::Rejected`] where its stdin is not open, or was closed meanwhile. Where the connection breaks it is
    /// not known how much of the last piece was taken, and nothing is sent twice.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<u64> {
        self.client.podlinks_own("write to a program's stdin")?;
        let mut accepted = 0;
        for piece in bytes.chunks(STDIN_PIECE) {
            let request = self
                .client
                .authorized(Method::POST, &self.path("/stdin"))
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .body(piece.to_vec());
            let took = self.client.change::<StdinAccepted>(request, self.client.settings.stdin_wait).await?;
            accepted += took.accepted_bytes;
            if took.accepted_bytes < piece.len() as u64 {
                break;
            }
        }
        Ok(accepted)
    }

    /// Closes its stdin: its program reads the end.
    ///
    /// # Errors
    /// As [`Job::write_stdin`].
    pub async fn close_stdin(&self) -> Result<()> {
        self.client.podlinks_own("close a program's stdin")?;
        let request = self.client.authorized(Method::DELETE, &self.path("/stdin"));
        let deadline = Instant::now() + self.client.settings.call_deadline;
        let sent: Result<Reply, TryError> = self.client.attempt(request, Form::Whole, deadline).await;
        match sent.map_err(|error| self.client.said(error))? {
            Reply::Whole(answer) if answer.status.is_success() => Ok(()),
            Reply::Whole(answer) => answer.parse::<serde::de::IgnoredAny>(&self.client.place).map(drop),
            Reply::Stream(_) => Err(Error::new(ErrorKind::Internal, "a stream came that was not asked for")),
        }
    }

    fn path(&self, below: &str) -> String {
        format!("{PATH_PROCESSES}/{}{below}", segment(&self.process_id))
    }
}
