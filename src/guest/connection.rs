//! One connection: what it may do, and how its requests reach the router.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::Request,
};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::Watcher,
};
use tokio::net::TcpStream;
use tower::ServiceExt as _;

use super::{
    Deadlines,
    request_id::RequestId,
    transport::{Active, Phase, Transport},
};
use crate::protocol::{ErrorBody, ErrorCode, HEADER_PROTOCOL, HEADER_REQUEST_ID, PROTOCOL_VERSION};

/// Most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1024;

/// Who is at the other end, as an extension of each of its requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) standing: Standing,
}

/// What a connection may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Anything.
    Served,
    /// `/health` alone: all places are taken.
    Lobby,
    /// Nothing: its address is not let in.
    Stranger,
}

/// The extension of an answer whose caller may take its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patient;

/// Serves the connection to its end.
pub(super) async fn converse(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    deadlines: Deadlines,
    agent_id: Arc<str>,
    watcher: Watcher,
) {
    if let Err(error) = stream.set_nodelay(true).and_then(|()| super::sys::keep_alive(&stream)) {
        tracing::debug!(%error, "the caller is gone already");
        return;
    }
    let phase = Arc::new(Phase::default());
    let refusal = move |theirs: &[u8]| refuse(theirs, peer, &agent_id);
    let transport = Transport::new(stream, Arc::clone(&phase), &deadlines, refusal);
    let service = service_fn(move |request: Request<Incoming>| {
        let active = phase.enter();
        let phase = Arc::clone(&phase);
        let mut request = request.map(|inner| Body::new(RequestBody { inner, phase, ended: false }));
        request.extensions_mut().insert(peer);
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await?;
            Ok::<_, Infallible>(response.map(|inner| ResponseBody { inner, _active: active }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.header)
        .max_buf_size(MAX_HEAD)
        .keep_alive(peer.standing == Standing::Served)
        .serve_connection(TokioIo::new(transport), service);
    let connection = watcher.watch(connection);
    let ended = if peer.standing == Standing::Served {
        connection.await
    } else {
        tokio::time::timeout(deadlines.lobby, connection).await.unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        // a caller that went away, was too slow, or spoke something else; each is its own affair
        tracing::debug!(peer = %peer.address, cause = %format_args!("{:#}", anyhow::Error::from(error)), "connection ended");
    }
}

/// The answer to what could not be read as a request.
fn refuse(theirs: &[u8], peer: Peer, agent_id: &str) -> Bytes {
    let detail = match theirs.get(9..12) {
        Some(b"431" | b"414") => {
            format!("the request's target and headers are larger than {MAX_HEAD} bytes, or too many")
        }
        _ => "this is not a request of HTTP/1.0 or HTTP/1.1".to_owned(),
    };
    let id = RequestId::make(agent_id).id;
    tracing::info!(id, peer = %peer.address, status = 400, %detail, "refused");
    let body = ErrorBody { detail: Some(detail), ..ErrorBody::new(ErrorCode::BadRequest) };
    let body = serde_json::to_string(&body).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         cache-control: no-store\r\n{HEADER_PROTOCOL}: {PROTOCOL_VERSION}\r\n{HEADER_REQUEST_ID}: {id}\r\n\r\n",
        body.len()
    );
    (head + &body).into()
}

/// A request's body, which tells when it was dropped before its end.
struct RequestBody {
    inner: Incoming,
    phase: Arc<Phase>,
    ended: bool,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        self.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.phase.left_unread();
        }
    }
}

/// An answer's body, until whose end the request counts as active.
struct ResponseBody {
    inner: Body,
    _active: Active,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
