//! The only place that builds HTTP clients: no proxies, no redirects, deadlines on everything.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Response, redirect, retry};

use super::{
    super::{Error, ErrorKind, Result},
    proof::ProofLayer,
};

/// Finds a peer that vanished (a frozen guest, a dropped route) under a quiet long call.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// What all clients have in common.
#[expect(clippy::disallowed_methods, reason = "this is the only builder")]
fn base() -> ClientBuilder {
    Client::builder()
        .no_proxy() // loopback requests, token and all, must never reach a proxy
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(TCP_KEEPALIVE)
        // a program that reads none of its stdin for a while closes the window, and that is no fault of the peer's
        .tcp_user_timeout(None)
}

/// The client that may bear the token: its connections are proved first.
pub(super) fn proving(layer: ProofLayer) -> Result<Client> {
    built(base().connector_layer(layer))
}

/// The client for agents that cannot prove anything.
pub(super) fn unproved(connect_deadline: Duration) -> Result<Client> {
    built(base().connect_timeout(connect_deadline))
}

/// The client that never bears a token and makes a new connection for each try.
pub(super) fn probing(deadline: Duration) -> Result<Client> {
    built(base().timeout(deadline).pool_max_idle_per_host(0))
}

fn built(builder: ClientBuilder) -> Result<Client> {
    builder
        .build()
        .map_err(|error| Error::new(ErrorKind::Internal, "could not build an HTTP client").with_source(error))
}

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The connection failed.
    Broken(reqwest::Error),
    /// It is over the cap.
    TooLarge,
}

/// Reads a body up to `cap` bytes.
pub(super) async fn read_body(mut response: Response, cap: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if body.len() + chunk.len() > cap {
            return Err(BodyError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A name as one segment of a path, whatever is in it.
pub(super) fn segment(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_~".contains(byte);
    // dots are encoded as well: `..` would be taken for the parent
    let encoded =
        name.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    encoded.collect()
}
