//! One question to a port on loopback: is this the agent that holds the pod's token?

use std::{net::SocketAddr, time::Duration};

use http_body_util::Empty;
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;

use crate::token::{Challenge, Proof, Token};

/// How long one question may take; the peer is this same machine.
const PER_TRY: Duration = Duration::from_secs(1);

/// Whether an agent at `address` proves that it holds `token`. The token itself is not sent.
///
/// Being ready is not asked for: an agent that waits for its gates is an agent.
pub(super) async fn holds_token(address: SocketAddr, token: &Token) -> bool {
    tokio::time::timeout(PER_TRY, proof(address, token)).await.ok().flatten().unwrap_or(false)
}

async fn proof(address: SocketAddr, token: &Token) -> Option<bool> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let challenge = Challenge::generate().ok()?;
    let request = Request::get("/health")
        .header(hyper::header::HOST, address.to_string())
        .header("Podlink-Challenge", challenge.to_hex())
        .body(Empty::<Bytes>::new())
        .ok()?;
    let answer = async {
        let response = sender.send_request(request).await.ok()?;
        let proof = Proof::parse(response.headers().get("Podlink-Proof")?.as_bytes())?;
        Some(proof == token.prove(&challenge))
    };
    tokio::select! {
        answer = answer => answer,
        _ = connection => None,
    }
}
