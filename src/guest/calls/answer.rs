//! From what came of a run to what its callers get.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;

use super::{
    super::{
        GuestError,
        counters::CallEnd,
        process::{Ending, Kill, Outcome, SpawnError},
    },
    no_turn::{NoSlot, NoTurn},
    text::text,
};
use crate::protocol::{ErrorBody, ErrorCode, ExecResult};

/// What the log says of a call.
#[derive(Debug, Clone, Copy)]
enum Summary {
    Exited(i64),
    Failed(ErrorCode),
}

/// What came of a call, without its output.
#[derive(Debug, Clone)]
pub(super) enum Brief {
    Result(Arc<ExecResult>),
    Error(Arc<ErrorBody>),
}

/// A call's answer, the same bytes for each caller that joined it.
#[derive(Debug, Clone)]
pub(in crate::guest) struct Finished {
    status: StatusCode,
    body: Bytes,
    retry_after_secs: Option<u32>,
    summary: Summary,
    pub(super) brief: Brief,
    /// Whether a program ran: if none did, the request may be tried again.
    pub ran: bool,
    /// When it was made.
    pub(super) at: Timestamp,
}

impl Finished {
    /// Bytes that keeping it takes.
    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    /// Its JSON: an [`ExecResult`] or an [`ErrorBody`].
    pub(in crate::guest) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Whether anybody may ask for it later: not where nothing ran, which its caller was told.
    pub(super) fn is_worth_a_record(&self) -> bool {
        self.ran || matches!(self.summary, Summary::Failed(ErrorCode::Cancelled))
    }

    /// The program's result, or the code of why there is none.
    pub(super) fn result(&self) -> Result<&ExecResult, ErrorCode> {
        match &self.brief {
            Brief::Result(result) => Ok(result),
            Brief::Error(error) => Err(error.error),
        }
    }

    /// How it ended, for the counters.
    pub(super) fn end(&self) -> CallEnd {
        match &self.brief {
            Brief::Result(result) if result.timed_out => CallEnd::TimedOut,
            Brief::Result(result) if result.rc == 0 => CallEnd::Succeeded,
            Brief::Result(_) => CallEnd::Failed,
            Brief::Error(error) => match error.error {
                ErrorCode::Cancelled => CallEnd::Cancelled,
                ErrorCode::AgentStopping => CallEnd::Stopped,
                ErrorCode::SpawnFailed => CallEnd::SpawnFailed,
                ErrorCode::Busy | ErrorCode::QueueFull => CallEnd::Refused,
                _ => CallEnd::Faulty,
            },
        }
    }

    /// How many processes the agent ended, and which it could not.
    pub(super) fn toll(&self) -> (u64, Vec<u32>) {
        match &self.brief {
            Brief::Result(result) => (result.killed, result.survivors.clone()),
            Brief::Error(error) => (error.killed.unwrap_or(0), error.survivors.clone().unwrap_or_default()),
        }
    }

    /// The same, less the output.
    pub(super) fn without_output(&self) -> Self {
        let body = match &self.brief {
            Brief::Result(result) => serde_json::to_vec(&**result),
            Brief::Error(error) => serde_json::to_vec(&**error),
        };
        Self { body: body.unwrap_or_default().into(), ..self.clone() }
    }

    /// For the log: the exit code, or why there is none.
    pub(super) fn summary(&self) -> String {
        match self.summary {
            Summary::Exited(rc) => format!("rc {rc}"),
            Summary::Failed(code) => code.as_str().to_owned(),
        }
    }

    /// The answer to a run that was started.
    pub(super) fn of_run(process_id: &str, outcome: Outcome) -> Self {
        let truncated = outcome.stdout.truncated() || outcome.stderr.truncated();
        let (stdout_bytes, stderr_bytes) = (outcome.stdout.total, outcome.stderr.total);
        let (stdout, stdout_b64) = text(outcome.stdout);
        let (stderr, stderr_b64) = text(outcome.stderr);
        let code = match outcome.ending {
            Ending::Exited | Ending::TimedOut => {
                let result = ExecResult {
                    rc: outcome.rc,
                    stdout,
                    stderr,
                    timed_out: outcome.ending == Ending::TimedOut,
                    truncated,
                    duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
                    process_id: process_id.to_owned(),
                    stdout_b64,
                    stderr_b64,
                    stdout_bytes,
                    stderr_bytes,
                    signal: outcome.signal,
                    killed: outcome.ended.killed,
                    survivors: outcome.ended.survivors,
                };
                let body = serde_json::to_vec(&result).unwrap_or_default().into();
                let brief = ExecResult {
                    stdout: String::new(),
                    stderr: String::new(),
                    stdout_b64: None,
                    stderr_b64: None,
                    ..result
                };
                return Self {
                    status: StatusCode::OK,
                    body,
                    retry_after_secs: None,
                    summary: Summary::Exited(outcome.rc),
                    brief: Brief::Result(Arc::new(brief)),
                    ran: true,
                    at: Timestamp::now(),
                };
            }
            Ending::Killed(Kill::Stopping) => ErrorCode::AgentStopping,
            Ending::Killed(Kill::Cancelled | Kill::CallerGone) => ErrorCode::Cancelled,
        };
        let brief = ErrorBody {
            detail: Some("the program was killed before it ended".to_owned()),
            started: Some(true),
            process_id: Some(process_id.to_owned()),
            killed: Some(outcome.ended.killed),
            survivors: Some(outcome.ended.survivors),
            ..ErrorBody::new(code)
        };
        let whole = ErrorBody { stdout: Some(stdout), stderr: Some(stderr), stdout_b64, stderr_b64, ..brief.clone() };
        Self::error(&whole, brief, true)
    }

    /// The answer to a call whose program's output went into a ring.
    pub(super) fn of_streamed(process_id: &str, outcome: Outcome) -> Self {
        let finished = Self::of_run(process_id, outcome);
        let brief = match &finished.brief {
            // nothing was kept here, and nothing is missing for that
            Brief::Result(result) => Brief::Result(Arc::new(ExecResult { truncated: false, ..(**result).clone() })),
            Brief::Error(error) => Brief::Error(Arc::clone(error)),
        };
        Self { brief, ..finished }.without_output()
    }

    /// The answer to a call that was ended before its program was started.
    pub(super) fn never_started(kill: Kill) -> Self {
        let code = if kill == Kill::Stopping { ErrorCode::AgentStopping } else { ErrorCode::Cancelled };
        let body = ErrorBody {
            detail: Some("the call was still waiting for its turn; nothing was run".to_owned()),
            started: Some(false),
            ..ErrorBody::new(code)
        };
        Self::plain_error(body, false)
    }

    /// The answer to a call that got no turn in its session.
    pub(super) fn no_turn(why: NoTurn) -> Self {
        match why {
            NoTurn::Busy => Self::busy("another call of the session runs or waits"),
            NoTurn::Full => Self::queue_full("too many calls wait for their turn in a session"),
            NoTurn::WaitedTooLong => Self::queue_full("its turn in the session did not come in time"),
        }
    }

    /// The answer to a call that was not to wait.
    pub(super) fn busy(detail: &str) -> Self {
        let body = ErrorBody {
            detail: Some(format!("{detail}, and this one was not to wait; nothing was run")),
            hint: Some("leave out `queue` to wait for a turn".to_owned()),
            ..ErrorBody::new(ErrorCode::Busy)
        };
        Self::plain_error(body, false)
    }

    /// The answer to a detached or attached call beyond the bound.
    pub(super) fn too_many_jobs() -> Self {
        Self::queue_full("as many detached and attached calls run as this agent takes")
    }

    /// The answer to a call that got no slot.
    pub(super) fn no_slot(why: NoSlot) -> Self {
        Self::queue_full(match why {
            NoSlot::QueueFull => "every slot and every place in the queue is taken",
            NoSlot::WaitedTooLong => "no slot became free in time",
        })
    }

    fn queue_full(detail: &str) -> Self {
        let body = ErrorBody {
            detail: Some(format!("{detail}; nothing was run")),
            hint: Some("try again later, or start the agent with more --exec-slots".to_owned()),
            ..ErrorBody::new(ErrorCode::QueueFull)
        };
        Self { retry_after_secs: Some(1), ..Self::plain_error(body, false) }
    }

    /// The answer to a call whose program could not be started.
    pub(super) fn not_spawned(error: &SpawnError) -> Self {
        let body = ErrorBody { detail: Some(error.to_string()), ..ErrorBody::new(ErrorCode::SpawnFailed) };
        Self::plain_error(body, false)
    }

    /// The answer to a call that a fault in the agent ended.
    pub(super) fn fault() -> Self {
        let body = ErrorBody {
            detail: Some("a fault in the agent ended the call; its log says more".to_owned()),
            ..ErrorBody::new(ErrorCode::InternalError)
        };
        Self::plain_error(body, true)
    }

    fn plain_error(body: ErrorBody, ran: bool) -> Self {
        Self::error(&body.clone(), body, ran)
    }

    fn error(body: &ErrorBody, brief: ErrorBody, ran: bool) -> Self {
        let status = StatusCode::from_u16(body.error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let summary = Summary::Failed(body.error);
        // these types hold nothing that JSON cannot: strings, numbers, lists
        let body = serde_json::to_vec(body).unwrap_or_default().into();
        Self {
            status,
            body,
            retry_after_secs: None,
            summary,
            brief: Brief::Error(Arc::new(brief)),
            ran,
            at: Timestamp::now(),
        }
    }
}

impl IntoResponse for Finished {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], self.body).into_response();
        if let Summary::Failed(code) = self.summary {
            response.extensions_mut().insert(code);
        }
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The refusal of a request id that stands for something else.
pub(super) fn conflict(detail: &str) -> GuestError {
    GuestError::new(ErrorCode::Conflict, format!("{detail}; nothing was run"))
        .hint("a new call needs a new X-Request-Id")
}
