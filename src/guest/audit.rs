//! Who changed what: one line of the target `audit` for every authorized request that changes something.
//!
//! A call's line is written at its end and says what came of it. Scripts are named by their SHA-256, programs by their
//! name: arguments may hold secrets, and so may stdin and variables, which are never there.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};

use super::{
    connection::Peer,
    log::{AUDIT, cut},
    loggable::loggable,
    request_id::RequestId,
};
use crate::protocol::{ErrorCode, ExecResult};

/// Most characters of a program's name.
const MAX_PROGRAM: usize = 256;

/// What a request does that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Begins a call. Its line is the call's own.
    Exec,
    /// Attaches to a call that is known.
    Attach,
    /// Ends a call by the id of its request.
    Cancel,
    /// Signals a call.
    Signal,
    /// Writes to a call's stdin.
    Stdin,
    /// Closes it.
    StdinClose,
    /// Ends a call.
    End,
    /// Ends a session.
    SessionEnd,
    /// Steps the guest's clock.
    SetTime,
    /// Restarts the agent.
    AgentRestart,
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::Cancel => "exec.cancel",
            Self::Signal => "process.signal",
            Self::Stdin => "process.stdin",
            Self::StdinClose => "process.stdin.close",
            Self::End => "process.end",
            Self::SessionEnd => "session.end",
            Self::SetTime => "time.set",
            Self::AgentRestart => "agent.restart",
        }
    }
}

/// The line of one request in the making; as an extension of the request, for those who know more of it.
#[derive(Debug, Clone)]
pub(super) struct Entry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    action: Action,
    peer: Option<SocketAddr>,
    request_id: String,
    /// What the path names: a call, a session, a request.
    object: String,
    detail: Mutex<Option<String>>,
    begun: Instant,
    /// Somebody else says what becomes of it, and when.
    kept: AtomicBool,
    written: AtomicBool,
}

impl Entry {
    fn of(action: Action, request: &Request) -> Self {
        let extensions = request.extensions();
        Self(Arc::new(Inner {
            action,
            peer: extensions.get::<Peer>().map(|peer| peer.address),
            request_id: extensions.get::<RequestId>().map(|id| id.id.clone()).unwrap_or_default(),
            object: request.uri().path().split('/').nth(2).map(loggable).unwrap_or_default(),
            detail: Mutex::default(),
            begun: Instant::now(),
            kept: AtomicBool::new(false),
            written: AtomicBool::new(false),
        }))
    }

    /// Who asked.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// Adds what the path does not say.
    pub(super) fn say(&self, detail: impl Into<String>) {
        *self.0.detail.lock().unwrap_or_else(PoisonError::into_inner) = Some(detail.into());
    }

    /// From now on the line is written by whoever calls [`Entry::end`], or by the call that was begun.
    pub(super) fn keep(&self) {
        self.0.kept.store(true, Ordering::SeqCst);
    }

    /// Writes the line, the first time.
    pub(super) fn end(&self, outcome: &str) {
        let entry = &self.0;
        if entry.written.swap(true, Ordering::SeqCst) {
            return;
        }
        let named = |actions: &[Action]| actions.contains(&entry.action).then_some(entry.object.as_str());
        tracing::info!(
            target: AUDIT,
            id = entry.request_id,
            peer = entry.peer.map(tracing::field::display),
            action = entry.action.word(),
            process_id =
                named(&[Action::Attach, Action::Signal, Action::Stdin, Action::StdinClose, Action::End]),
            session = named(&[Action::SessionEnd]),
            request = named(&[Action::Cancel]),
            detail = entry.detail.lock().unwrap_or_else(PoisonError::into_inner).as_deref(),
            outcome,
            ms = ms(entry.begun.elapsed()),
            "change"
        );
    }
}

/// A request whose handler ends without an answer has lost its caller, and may have had effects all the same.
struct Handling(Entry);

impl Drop for Handling {
    fn drop(&mut self) {
        if !self.0.0.kept.load(Ordering::SeqCst) {
            self.0.end("caller_gone");
        }
    }
}

/// The layer of a route that changes something.
pub(super) async fn audited(State(action): State<Action>, mut request: Request, next: Next) -> Response {
    let entry = Entry::of(action, &request);
    request.extensions_mut().insert(entry.clone());
    let handling = Handling(entry);
    let response = next.run(request).await;
    let Handling(entry) = &handling;
    if !entry.0.kept.load(Ordering::SeqCst) {
        match response.extensions().get::<ErrorCode>() {
            Some(code) => entry.end(code.as_str()),
            None if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                entry.end("done");
            }
            None => entry.end(response.status().as_str()),
        }
    }
    response
}

/// What is to be said of a call that has ended.
#[derive(Debug)]
pub(super) struct CallLine<'a> {
    pub(super) request_id: &'a str,
    pub(super) peer: Option<SocketAddr>,
    pub(super) mode: &'static str,
    pub(super) process_id: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) script_sha256: Option<&'a str>,
    /// The script itself, where the settings say so.
    pub(super) script: Option<&'a str>,
    pub(super) argv: Option<&'a [String]>,
    /// What came of it, or why nothing did.
    pub(super) result: Result<&'a ExecResult, ErrorCode>,
    pub(super) took: Duration,
}

impl CallLine<'_> {
    /// Writes the line.
    pub(super) fn write(&self) {
        let program = self.argv.and_then(|argv| argv.first());
        let program = program.map(|name| name.chars().take(MAX_PROGRAM).collect::<String>());
        let (rc, outcome) = match self.result {
            Ok(result) if result.timed_out => (Some(result.rc), "timed_out"),
            Ok(result) => (Some(result.rc), "exited"),
            Err(code) => (None, code.as_str()),
        };
        tracing::info!(
            target: AUDIT,
            id = self.request_id,
            peer = self.peer.map(tracing::field::display),
            action = Action::Exec.word(),
            mode = self.mode,
            process_id = self.process_id,
            session = self.session,
            script_sha256 = self.script_sha256,
            script = self.script,
            program,
            outcome,
            rc,
            ms = ms(self.took),
            "change"
        );
    }
}

/// As much of a script as goes into a line.
pub(super) fn script_text(source: &[u8]) -> String {
    cut(String::from_utf8_lossy(source))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
