//! `GET /exec/attach` and `GET /processes/{id}/attach`: a WebSocket between a client and a call.
//!
//! ```text
//! admitted ──▶ 101 ──first message──▶ begun ──▶ started ──▶ output, stdin, sizes ──▶ result, close 1000
//!                │                                               │
//!                └─ not what was asked for: error, close 1008    ├─ detach: told the offset, close 1000
//!                                                                ├─ the client is gone: the call has lost its caller
//!                                                                └─ the agent stops: its error, close 1001
//! ```
//!
//! Admission is that of any path, and comes before the upgrade. [`talk`] is the conversation, [`backlog`] what lies
//! between a client that types and a program that does not read.

mod backlog;
mod messages;
mod talk;

use axum::{
    Extension,
    body::Bytes,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
        ws::{WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;
use tracing::Instrument as _;

use self::talk::{Parting, Talk};
use super::{
    GuestError, audit,
    calls::{Digest, Form, Joined, check},
    exec::meant_for_this_agent,
    extract::{asked, named, parse_json},
    process::{Claim, Reader},
    request_id::RequestId,
    state::AppState,
};
use crate::protocol::{AttachRequest, ErrorCode, MAX_JSON_BODY, MAX_MESSAGE};

/// `GET /exec/attach`: begins a call, which the first message describes.
pub(super) async fn exec(
    State(state): State<AppState>,
    Extension(request_id): Extension<RequestId>,
    Extension(entry): Extension<audit::Entry>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, GuestError> {
    meant_for_this_agent(&headers, state.agent_id())?;
    Ok(converse(upgraded(upgrade)?, state, What::New(request_id), entry))
}

/// What `GET /processes/{id}/attach` may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AttachQuery {
    offset: Option<u64>,
}

/// `GET /processes/{id}/attach`: joins a call that is known.
pub(super) async fn process(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<AttachQuery>, QueryRejection>,
    Extension(entry): Extension<audit::Entry>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, GuestError> {
    let (id, query) = (named(id)?, asked(query)?);
    let upgrade = upgraded(upgrade)?;
    let joined = state.calls().find(&id)?;
    let reader = joined.reader(query.offset, Claim::Caller)?;
    Ok(converse(upgrade, state, What::Known(joined, reader), entry))
}

fn upgraded(upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>) -> Result<WebSocketUpgrade, GuestError> {
    upgrade.map_err(|error| {
        GuestError::new(ErrorCode::BadRequest, error.body_text())
            .hint("this path is a WebSocket: send Upgrade: websocket, and what goes with it")
    })
}

/// What a client wants to be attached to.
enum What {
    /// A call that is still to be described.
    New(RequestId),
    /// A call, and its output from the place where it was asked for.
    Known(Joined, Reader),
}

fn converse(upgrade: WebSocketUpgrade, state: AppState, what: What, entry: audit::Entry) -> Response {
    entry.keep(); // the conversation ends long after this answer
    let here = state.attachments().one();
    let span = tracing::Span::current();
    let conversation = move |socket: WebSocket| {
        async move {
            let ending = state.attachments().ending();
            let mut talk = Talk::new(socket, &state.config().deadlines, ending);
            let joins = matches!(what, What::Known(..));
            let parting = begin_and_talk(&mut talk, &state, what, &entry).await;
            tracing::info!(parting = parting.word(), "no longer attached");
            match &parting {
                Parting::Refused(error) => entry.end(error.error.as_str()),
                _ if joins => entry.end(parting.word()),
                _ => {} // a call that was begun has a line of its own
            }
            talk.part(parting).await;
            drop(here);
        }
        .instrument(span)
    };
    upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .write_buffer_size(0) // what is sent goes out
        .on_failed_upgrade(|error| tracing::debug!(%error, "the client was gone before it was attached"))
        .on_upgrade(conversation)
}

async fn begin_and_talk(talk: &mut Talk, state: &AppState, what: What, entry: &audit::Entry) -> Parting {
    let (joined, reader) = match what {
        What::Known(joined, reader) => (joined, reader),
        What::New(request_id) => {
            let request = match talk.first_message().await {
                Ok(request) => request,
                Err(parting) => return parting,
            };
            let begun = begin(state, &request_id, entry, &request);
            match begun.and_then(|joined| joined.reader(Some(0), Claim::Caller).map(|reader| (joined, reader))) {
                Ok(begun) => begun,
                Err(error) => return Parting::Refused(Box::new(error.told().clone())),
            }
        }
    };
    talk.attached(joined, reader).await
}

fn begin(
    state: &AppState,
    request_id: &RequestId,
    entry: &audit::Entry,
    message: &Bytes,
) -> Result<Joined, GuestError> {
    if message.len() > MAX_JSON_BODY {
        return Err(GuestError::new(
            ErrorCode::TooLarge,
            format!("the first message is larger than {MAX_JSON_BODY} bytes"),
        ));
    }
    let digest = Digest::of(Form::Attached.as_str(), message);
    let AttachRequest { exec, pty } = parse_json(message)?;
    let calls = state.calls();
    let checked = check(exec, pty.as_ref(), Form::Attached, calls.settings())?;
    calls.begin(request_id, entry, digest, checked)
}
