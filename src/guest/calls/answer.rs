//! From what came of a run to what its callers get.

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{
    super::{
        GuestError,
        process::{Captured, Ending, Kill, Outcome, SpawnError},
    },
    slots::NoSlot,
};
use crate::protocol::{ErrorBody, ErrorCode, ExecResult};

/// What the log says of a call.
#[derive(Debug, Clone, Copy)]
enum Summary {
    Exited(i64),
    Failed(ErrorCode),
}

/// A call's answer, the same bytes for each caller that joined it.
#[derive(Debug, Clone)]
pub(in crate::guest) struct Finished {
    status: StatusCode,
    body: Bytes,
    retry_after_secs: Option<u32>,
    summary: Summary,
    /// Whether a program ran: if none did, the request may be tried again.
    pub ran: bool,
}

impl Finished {
    /// Bytes that keeping it takes.
    pub(super) fn len(&self) -> usize {
        self.body.len()
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
                return Self::json(StatusCode::OK, &result, Summary::Exited(outcome.rc), true);
            }
            Ending::Killed(Kill::Stopping) => ErrorCode::AgentStopping,
            Ending::Killed(Kill::Cancelled | Kill::CallerGone) => ErrorCode::Cancelled,
        };
        let body = ErrorBody {
            detail: Some("the program was killed before it ended".to_owned()),
            started: Some(true),
            process_id: Some(process_id.to_owned()),
            killed: Some(outcome.ended.killed),
            survivors: Some(outcome.ended.survivors),
            stdout: Some(stdout),
            stderr: Some(stderr),
            stdout_b64,
            stderr_b64,
            ..ErrorBody::new(code)
        };
        Self::error(&body, true)
    }

    /// The answer to a call that was ended before its program was started.
    pub(super) fn never_started(kill: Kill) -> Self {
        let code = if kill == Kill::Stopping { ErrorCode::AgentStopping } else { ErrorCode::Cancelled };
        let body = ErrorBody {
            detail: Some("the call was still waiting for its turn; nothing was run".to_owned()),
            started: Some(false),
            ..ErrorBody::new(code)
        };
        Self::error(&body, false)
    }

    /// The answer to a call that got no slot.
    pub(super) fn no_slot(why: NoSlot) -> Self {
        let detail = match why {
            NoSlot::QueueFull => "every slot and every place in the queue is taken",
            NoSlot::WaitedTooLong => "no slot became free in time",
        };
        let body = ErrorBody {
            detail: Some(format!("{detail}; nothing was run")),
            hint: Some("try again later, or start the agent with more --exec-slots".to_owned()),
            ..ErrorBody::new(ErrorCode::QueueFull)
        };
        Self { retry_after_secs: Some(1), ..Self::error(&body, false) }
    }

    /// The answer to a call whose program could not be started.
    pub(super) fn not_spawned(error: &SpawnError) -> Self {
        let body = ErrorBody { detail: Some(error.to_string()), ..ErrorBody::new(ErrorCode::SpawnFailed) };
        Self::error(&body, false)
    }

    /// The answer to a call that a fault in the agent ended.
    pub(super) fn fault() -> Self {
        let body = ErrorBody {
            detail: Some("a fault in the agent ended the call; its log says more".to_owned()),
            ..ErrorBody::new(ErrorCode::InternalError)
        };
        Self::error(&body, true)
    }

    fn error(body: &ErrorBody, ran: bool) -> Self {
        let status = StatusCode::from_u16(body.error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::json(status, body, Summary::Failed(body.error), ran)
    }

    fn json(status: StatusCode, body: &impl serde::Serialize, summary: Summary, ran: bool) -> Self {
        // these types hold nothing that JSON cannot: strings, numbers, lists
        let body = serde_json::to_vec(body).unwrap_or_default().into();
        Self { status, body, retry_after_secs: None, summary, ran }
    }
}

impl IntoResponse for Finished {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], self.body).into_response();
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The text, and the bytes in base64 where the text does not give them back.
fn text(captured: Captured) -> (String, Option<String>) {
    match String::from_utf8(captured.bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(BASE64_STANDARD.encode(bytes)))
        }
    }
}

/// The refusal of a request id that stands for something else.
pub(super) fn conflict(detail: &str) -> GuestError {
    GuestError::new(ErrorCode::Conflict, format!("{detail}; nothing was run"))
        .hint("a new call needs a new X-Request-Id")
}
