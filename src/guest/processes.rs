//! `/processes`: the calls that the agent knows, and what can be done to one of them.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
    response::Response,
};
use http_body_util::BodyExt as _;
use serde::Deserialize;

use super::{
    GuestError, audit,
    calls::{Form, Joined},
    extract::{JsonBytes, asked, named, parse_json},
    process::Claim,
    state::AppState,
    streams::{self, Manner},
    sys::{SignalNumber, UnknownSignal},
};
use crate::protocol::{ErrorCode, ProcessEnded, ProcessInfo, ProcessList, SignalRequest, Signalled, StdinAccepted};

/// Bytes that are written to a program's stdin at once.
const STDIN_PIECE: usize = 64 * 1024;

/// Most milliseconds between TERM and KILL that a caller may ask for.
const MOST_GRACE_MS: u64 = 60_000;

/// `GET /processes`.
pub(super) async fn list(State(state): State<AppState>) -> Json<ProcessList> {
    Json(ProcessList { processes: state.calls().infos() })
}

/// `GET /processes/{id}`.
pub(super) async fn get(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ProcessInfo>, GuestError> {
    state.calls().info(&named(id)?).map(Json)
}

/// What `DELETE /processes/{id}` may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndQuery {
    grace_ms: Option<u64>,
    keep: bool,
}

/// `DELETE /processes/{id}`.
pub(super) async fn end(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<EndQuery>, QueryRejection>,
) -> Result<Json<ProcessEnded>, GuestError> {
    let (id, query) = (named(id)?, asked(query)?);
    if query.grace_ms.is_some_and(|ms| ms > MOST_GRACE_MS) {
        return Err(GuestError::new(ErrorCode::BadRequest, "grace_ms is too large")
            .hint(format!("give up to {MOST_GRACE_MS} milliseconds")));
    }
    state.calls().end(&id, query.grace_ms.map(Duration::from_millis), query.keep).await.map(Json)
}

/// What `GET /processes/{id}/output` may be asked.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct OutputQuery {
    offset: Option<u64>,
    follow: bool,
    /// Only look on, rather than be the one whom the program waits for.
    watch: bool,
}

impl Default for OutputQuery {
    fn default() -> Self {
        Self { offset: None, follow: true, watch: false }
    }
}

/// `GET /processes/{id}/output`.
pub(super) async fn output(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<OutputQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, GuestError> {
    let (id, query) = (named(id)?, asked(query)?);
    let joined = state.calls().find(&id)?;
    let reader = joined.reader(query.offset, if query.watch { Claim::Watcher } else { Claim::Caller })?;
    let joined = if query.watch { joined.watching() } else { joined };
    let form = streams::wanted(&headers).unwrap_or(Form::Frames);
    let keep_alive = state.calls().settings().stream_keep_alive;
    Ok(streams::answer(joined, reader, Manner { form, follow: query.follow, keep_alive }))
}

/// What `POST /processes/{id}/stdin` may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StdinQuery {
    close: bool,
}

/// `POST /processes/{id}/stdin`: the body goes to the program as it comes, at the program's pace.
pub(super) async fn write_stdin(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<StdinQuery>, QueryRejection>,
    mut body: Body,
) -> Result<Json<StdinAccepted>, GuestError> {
    let (joined, query) = (state.calls().find(&named(id)?)?, asked(query)?);
    started(&joined).await?;
    let input = joined.input()?;
    // who writes for as long as the program does not read is not who waits for its output
    drop(joined);
    let deadlines = &state.config().deadlines;
    let mut accepted_bytes: u64 = 0;
    loop {
        let frame = match tokio::time::timeout(deadlines.body_stall, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                let detail = format!("the body ended early; {accepted_bytes} bytes of it went to the program");
                return Err(GuestError::new(ErrorCode::BadRequest, detail).caused_by(error).closing());
            }
            Err(_) => {
                let detail = format!("the body stalled; {accepted_bytes} bytes of it went to the program");
                return Err(GuestError::new(ErrorCode::Timeout, detail).closing());
            }
        };
        let Some(data) = frame.data_ref() else { continue };
        for piece in data.chunks(STDIN_PIECE) {
            // a caller that has gone is not seen here, and a program may read nothing for days
            let Ok(written) = tokio::time::timeout(deadlines.stdin_stall, input.write(piece)).await else {
                let detail =
                    format!("the program reads nothing; at least {accepted_bytes} bytes of the body went to it");
                return Err(GuestError::new(ErrorCode::Timeout, detail).closing());
            };
            accepted_bytes += written.as_ref().map_or_else(|closed| closed.accepted, |()| piece.len()) as u64;
            if written.is_err() {
                let detail = format!("the program's stdin is closed; {accepted_bytes} bytes of the body went to it");
                return Err(GuestError::new(ErrorCode::Conflict, detail).closing());
            }
        }
    }
    if accepted_bytes == 0 && !input.is_open() {
        return Err(GuestError::new(
            ErrorCode::Conflict,
            "the program's stdin is closed; 0 bytes of the body went to it",
        ));
    }
    if query.close {
        input.close().await;
    }
    Ok(Json(StdinAccepted { accepted_bytes }))
}

/// `DELETE /processes/{id}/stdin`: the program sees the end.
pub(super) async fn close_stdin(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, GuestError> {
    let joined = state.calls().find(&named(id)?)?;
    started(&joined).await?;
    joined.input()?.close().await;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /processes/{id}/signal`.
pub(super) async fn signal(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    Extension(entry): Extension<audit::Entry>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Signalled>, GuestError> {
    let joined = state.calls().find(&named(id)?)?;
    let request: SignalRequest = parse_json(&body)?;
    let signal: SignalNumber = request
        .signal
        .parse()
        .map_err(|error: UnknownSignal| GuestError::new(ErrorCode::BadRequest, error.to_string()))?;
    entry.say(format!("{}{}", request.signal, if request.tree { " to all" } else { "" }));
    let Some(tree) = joined.tree() else {
        return Err(GuestError::new(ErrorCode::Conflict, "the call's program does not run; nobody was signalled"));
    };
    let send = move || if request.tree { Ok(tree.signal_all(signal)) } else { tree.signal_leader(signal).map(|()| 1) };
    // who belongs to a call is looked up in the process table, and a Ctrl-C takes a process of its own: both block
    let outcome = tokio::task::spawn_blocking(send).await.unwrap_or_else(|error| Err(error.into()));
    let signalled = outcome.map_err(|error| {
        GuestError::new(ErrorCode::Conflict, "the call's program could not be signalled").caused_by(error)
    })?;
    Ok(Json(Signalled { signalled }))
}

/// A call that waits for its turn has no stdin yet; its callers wait with it.
async fn started(joined: &Joined) -> Result<(), GuestError> {
    joined.started().await.map(drop).map_err(|_| {
        GuestError::new(ErrorCode::Conflict, "the call ended before its program was started; nothing was written")
    })
}
