//! What every answer bears, and the line that every request gets in the log.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::Response,
};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tracing::{Instrument as _, Span};

use super::{connection::Peer, counters::Counters, loggable::loggable, request_id::RequestId, state::AppState};
use crate::protocol::{HEADER_PROTOCOL, HEADER_REQUEST_ID, PATH_HEALTH, PROTOCOL_VERSION};

/// The outermost layer: gives the request its id, and the answer its headers.
///
/// An id that cannot be one is refused by `admit`, in its turn; until then the request goes by one that was made.
pub(super) async fn stamp(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let id = match RequestId::given(request.headers()) {
        Ok(Some(id)) => id,
        _ => RequestId::make(state.agent_id()),
    };
    // whatever the filter lets through of what is logged within, it bears the id
    let span = tracing::error_span!("request", id = %id.id);
    let line = Line::of(&request, span.clone(), state.counters());
    let header_id = HeaderValue::from_str(&id.id).ok();
    request.extensions_mut().insert(id);

    let mut response = next.run(request).instrument(span.clone()).await;

    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static(HEADER_PROTOCOL), HeaderValue::from(PROTOCOL_VERSION));
    // the library's own stands still for as long as the clock was set back by
    if let Some(date) = date() {
        headers.insert(header::DATE, date);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(id) = header_id {
        headers.insert(HeaderName::from_static(HEADER_REQUEST_ID), id);
    }
    line.answered(response.status().as_u16());
    response.map(|body| Body::new(Within { body: Some(body), span }))
}

/// An answer's body, made within its request's span.
struct Within {
    body: Option<Body>,
    span: Span,
}

impl HttpBody for Within {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let span = self.span.clone();
        let _within = span.enter();
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        // what its end sets off belongs to the request too
        let _within = self.span.enter();
        drop(self.body.take());
    }
}

/// This moment, as HTTP has it.
fn date() -> Option<HeaderValue> {
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&jiff::Timestamp::now());
    HeaderValue::try_from(text.ok()?).ok()
}

/// A line of the log in the making; it is written when the request has its answer, or loses its caller.
///
/// It never holds the query, headers or the body: they may be secrets.
struct Line {
    span: Span,
    peer: String,
    method: Method,
    path: String,
    begun: Instant,
    answered: bool,
    counters: Arc<Counters>,
}

impl Line {
    fn of(request: &Request, span: Span, counters: &Arc<Counters>) -> Self {
        Self {
            span,
            peer: request.extensions().get::<Peer>().map(|peer| peer.address.to_string()).unwrap_or_default(),
            method: request.method().clone(),
            path: loggable(request.uri().path()),
            begun: Instant::now(),
            answered: false,
            counters: Arc::clone(counters),
        }
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn answered(mut self, status: u16) {
        self.answered = true;
        self.counters.answered(status);
        let Self { span, peer, method, path, .. } = &self;
        let ms = self.ms();
        let _within = span.enter();
        // health is asked many times a second by whoever waits
        if path == PATH_HEALTH {
            tracing::debug!(peer, %method, path, status, ms, "request");
        } else {
            tracing::info!(peer, %method, path, status, ms, "request");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.answered {
            self.counters.requests_lost.add_one();
            let ms = self.ms();
            let Self { span, peer, method, path, .. } = self;
            let _within = span.enter();
            tracing::info!(peer, %method, path, ms, "request lost its caller before the answer");
        }
    }
}
