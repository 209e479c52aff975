//! The layer around reqwest's connector: a connection is handed out only after its peer has proved the token.
//!
//! Implementation note: the proof must be asked on the very connection that will carry the token. Between a check on
//! one connection and a call on another the agent may have gone and a foreign program have taken the port. So the
//! layer lets the connector connect, speaks one `GET /health` with a challenge over that connection, verifies the
//! answer, and takes the connection back out of hyper, with nothing unread in it.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{CONNECTION, HOST},
};
use tower::{Layer, Service};

use super::health::{BoxError, Expected, ProofError, Seen, judge};
use crate::{
    protocol::{HEADER_CHALLENGE, HEADER_PROOF, Health, PATH_HEALTH},
    token::{Challenge, Token},
};

/// More than a health answer ever takes.
pub(super) const MAX_HEALTH: usize = 64 * 1024;

/// The agents that have proved themselves to one client.
#[derive(Debug, Default)]
pub(super) struct Agents {
    proved: Mutex<Proved>,
}

#[derive(Debug, Default)]
struct Proved {
    latest: Option<Health>,
    /// How often another agent than the one before was met.
    changes: u64,
}

impl Agents {
    fn add(&self, health: Health) {
        let mut proved = self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        if proved.latest.as_ref().map(|latest| &latest.agent_id) != Some(&health.agent_id) {
            proved.changes += 1;
        }
        proved.latest = Some(health);
    }

    /// The id of the one met last.
    pub(super) fn latest(&self) -> Option<String> {
        let proved = self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        proved.latest.as_ref().map(|health| health.agent_id.clone())
    }

    /// The id of the one and only that has ever been met.
    pub(super) fn only(&self) -> Option<String> {
        let proved = self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        if proved.changes == 1 { proved.latest.as_ref().map(|health| health.agent_id.clone()) } else { None }
    }
}

/// What the layer and its connectors share.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) token: Token,
    pub(super) address: SocketAddr,
    pub(super) connect_deadline: Duration,
    pub(super) proof_deadline: Duration,
    pub(super) agents: Arc<Agents>,
}

/// Wraps a connector so that it hands out proved connections only.
#[derive(Debug, Clone)]
pub(super) struct ProofLayer(pub(super) Arc<Guard>);

impl<S> Layer<S> for ProofLayer {
    type Service = ProvingConnector<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ProvingConnector { inner, guard: self.0.clone() }
    }
}

/// The wrapped connector.
#[derive(Debug, Clone)]
pub(super) struct ProvingConnector<S> {
    inner: S,
    guard: Arc<Guard>,
}

impl<S, Target> Service<Target> for ProvingConnector<S>
where
    S: Service<Target, Error = BoxError>,
    S::Response: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, target: Target) -> Self::Future {
        let connecting = self.inner.call(target);
        let guard = self.guard.clone();
        Box::pin(async move {
            let connection = tokio::time::timeout(guard.connect_deadline, connecting)
                .await
                .map_err(|_| ProofError::met(Seen::Silent))?
                .map_err(ProofError::broken)?;
            let proved = tokio::time::timeout(guard.proof_deadline, prove(connection, &guard)).await;
            Ok(proved.map_err(|_| ProofError::met(Seen::Silent))??)
        })
    }
}

/// Has the peer prove itself, and gives the connection back.
async fn prove<C>(connection: C, guard: &Guard) -> Result<C, ProofError>
where
    C: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let challenge = Challenge::generate()?;
    let expected = Expected::Proof(guard.token.prove(&challenge));
    let request = hyper::Request::get(PATH_HEALTH)
        .header(HOST, guard.address.to_string())
        .header(HEADER_CHALLENGE, challenge.to_hex())
        .body(Empty::<Bytes>::new())
        .map_err(|error| ProofError::broken(error.into()))?;
    let (mut sender, mut connection) =
        http1::handshake(connection).await.map_err(|error| ProofError::broken(error.into()))?;

    let mut ended = false;
    let answer = {
        let mut exchange = pin!(async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_HEALTH).collect().await?.to_bytes();
            Ok::<_, BoxError>((head, body))
        });
        poll_fn(|cx| {
            // the connection moves the bytes, the exchange waits for them: one may be ready only after the other
            if !ended && connection.poll_without_shutdown(cx).is_ready() {
                ended = true; // of an error in it the exchange is told
            }
            exchange.as_mut().poll(cx)
        })
        .await
    };
    let (head, body) = answer.map_err(ProofError::broken)?;
    let proof = head.headers.get(HEADER_PROOF).map(hyper::header::HeaderValue::as_bytes);
    let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or_default();
    let (seen, proved) = judge(status, proof, &body, &expected);
    let (true, Some(health)) = (proved, seen.health().cloned()) else {
        return Err(ProofError::met(seen));
    };

    let closes = head.headers.get_all(CONNECTION).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("close")))
    });
    if ended || closes || head.version != hyper::Version::HTTP_11 {
        // it holds the token and will not take a call on this connection
        let going = health.stage == crate::protocol::Stage::Draining;
        return Err(ProofError::met(if going { seen } else { Seen::Reset }));
    }
    drop(sender); // ends hyper's part in it
    let parts = connection.without_shutdown().await.map_err(|error| ProofError::broken(error.into()))?;
    if !parts.read_buf.is_empty() {
        let what = "more bytes than it was asked for".to_owned();
        return Err(ProofError::met(Seen::Foreign { status: None, what }));
    }
    guard.agents.add(health);
    Ok(parts.io)
}
