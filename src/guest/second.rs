//! Who holds the port: another agent, or another program.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::protocol::{Health, PATH_HEALTH, Stage};

/// For the whole question. An agent answers within milliseconds; one that has just bound its port, within its start.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most bytes of the answer that are read: many times what an agent's takes.
const MAX_ANSWER: usize = 64 * 1024;

/// Who was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Occupant {
    /// An agent that runs.
    Agent { agent_id: String, version: String },
    /// An agent that is going down.
    Leaving,
    /// Nobody accepts connections (any more).
    Nobody,
    /// Something accepts and does not answer.
    Silent,
    /// Something answers that is no agent.
    Foreign,
}

/// Asks `/health` on an address that could not be bound.
pub(super) async fn look(address: SocketAddr) -> Occupant {
    match tokio::time::timeout(PATIENCE, ask(reachable(address))).await {
        Ok(occupant) => occupant,
        Err(_) => Occupant::Silent,
    }
}

/// Where one that listens there is reached from this very system.
pub(super) fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

/// Whether an agent answers there that serves calls.
pub(super) async fn is_ready(address: SocketAddr) -> bool {
    let address = from_here(address);
    let answer = async { health(TcpStream::connect(address).await.ok()?, address.port()).await };
    matches!(tokio::time::timeout(PATIENCE, answer).await, Ok(Some((StatusCode::OK, Health { ok: true, .. }))))
}

/// Where an address that is listened on is reached from this system.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

async fn ask(address: SocketAddr) -> Occupant {
    let Ok(stream) = TcpStream::connect(address).await else { return Occupant::Nobody };
    let Some((status, health)) = health(stream, address.port()).await else { return Occupant::Foreign };
    let expected = [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
    match health {
        Health { stage: Stage::Draining, .. } => Occupant::Leaving,
        Health { agent_id, version, protocol: 1.., .. } if expected && !agent_id.is_empty() => {
            Occupant::Agent { agent_id, version }
        }
        _ => Occupant::Foreign,
    }
}

async fn health(stream: TcpStream, port: u16) -> Option<(StatusCode, Health)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = Request::get(PATH_HEALTH)
        .header(header::HOST, format!("127.0.0.1:{port}"))
        .header(header::CONNECTION, "close")
        .body(Body::empty())
        .ok()?;
    let answer = async {
        let response = sender.send_request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        let bytes = Limited::new(body, MAX_ANSWER).collect().await.ok()?.to_bytes();
        Some((parts.status, serde_json::from_slice(&bytes).ok()?))
    };
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // the connection may end before the last of the answer has been taken from it
        _ = &mut connection => answer.await,
    }
}
