//! One connection: what it may do, and how its requests reach the router.

use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode},
};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::{HttpService, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
};
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

/// Marks an answer, as an extension of it, whose reader may take its time: it is not given up for standing still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patient;

/// Serves the connection to its end, or until it is upgraded: from then on whoever upgraded it has it.
///
/// Once `stopping` is true, an answer that is on its way is the last.
pub(super) async fn converse(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    peer: Peer,
    router: Router,
    deadlines: Deadlines,
    agent_id: Arc<str>,
    stopping: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true).and_then(|()| super::sys::keep_alive(&stream)) {
        tracing::debug!(%error, "the caller is gone already");
        return;
    }
    let phase = Arc::new(Phase::default());
    let refusal = move |theirs: &[u8]| refuse(theirs, peer, &agent_id);
    let transport = Transport::new(stream, place, Arc::clone(&phase), &deadlines, refusal);
    let service = service_fn(move |request: Request<Incoming>| {
        let active = phase.enter();
        let phase = Arc::clone(&phase);
        let body_phase = Arc::clone(&phase);
        let mut request = request.map(|inner| Body::new(RequestBody { inner, phase: body_phase, ended: false }));
        request.extensions_mut().insert(peer);
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                phase.upgraded();
            } else if response.extensions().get::<Patient>().is_some() {
                phase.answered_in_its_time();
            }
            Ok::<_, Infallible>(response.map(|inner| ResponseBody { inner, _active: active }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.header)
        .max_buf_size(MAX_HEAD)
        .keep_alive(peer.standing == Standing::Served)
        .serve_connection(TokioIo::new(transport), service)
        .with_upgrades();
    let connection = until_stopped(connection, stopping);
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

/// Drives a connection, and lets it end after the answer that is on its way once the agent stops.
async fn until_stopped<S, B, R>(
    connection: http1::UpgradeableConnection<TokioIo<Transport<R>>, S>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), hyper::Error>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Fn(&[u8]) -> Bytes + Unpin + Send + 'static,
{
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{Extension, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        sync::Semaphore,
        time::{sleep, timeout},
    };

    use super::*;

    /// More than the two sockets hold between them.
    const MUCH: usize = 32 * 1024 * 1024;

    #[tokio::test]
    async fn a_reader_that_stands_still_is_given_up_unless_the_answer_is_marked() {
        let router = Router::new()
            .route("/plain", get(|| async { vec![7_u8; MUCH] }))
            .route("/stream", get(|| async { (Extension(Patient), vec![7_u8; MUCH]) }));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (_stop, stopping) = watch::channel(false);
        for (path, all_comes) in [("/plain", false), ("/stream", true)] {
            let mut caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, address) = listener.accept().await.unwrap();
            let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let peer = Peer { address, standing: Standing::Served };
            let deadlines = Deadlines { write_stall: Duration::from_millis(100), ..Deadlines::DEFAULT };
            let serving = converse(stream, place, peer, router.clone(), deadlines, "a".into(), stopping.clone());
            let serving = tokio::spawn(serving);
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            caller.write_all(request.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(500)).await; // five times what is given
            assert_eq!(serving.is_finished(), !all_comes, "{path}");
            let mut said = Vec::new();
            let read = timeout(Duration::from_secs(20), caller.read_to_end(&mut said)).await.expect("an end");
            assert_eq!(read.is_ok() && said.len() > MUCH, all_comes, "{path}: {} bytes", said.len());
        }
    }
}
