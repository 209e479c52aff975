//! The installation's own agent, asked to restart: from inside one of its calls as well.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use axum::{
    body::Body,
    http::{HeaderValue, Method, Request, StatusCode, header},
};
use http_body_util::{BodyExt as _, Limited};
use hyper::{body::Bytes, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::{
    super::{
        second::{Occupant, reachable},
        sys,
    },
    agent::occupant,
    look::Installation,
};
use crate::{
    protocol::{ErrorBody, HEADER_CHALLENGE, HEADER_PROOF, PATH_AGENT_RESTART, PATH_HEALTH, RestartAccepted},
    token::{self, Challenge, Owners, Proof, Token},
};

/// For the agent to take the request: it does nothing else before it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Most bytes of an answer that are read: many times what an agent's takes.
const MAX_ANSWER: usize = 64 * 1024;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restarted {
    /// Another agent answers.
    Answers {
        /// The one that has ended.
        before: String,
        /// The one that answers.
        agent_id: String,
        /// Its version.
        version: String,
    },
    /// It ends once the call that this process belongs to has its answer: to wait for that here would be in vain.
    UnderWay {
        /// How long calls still have.
        drain: Duration,
    },
    /// Nobody has come in its place in time.
    NotBack {
        /// The one that has ended, or is about to.
        before: String,
    },
}

/// Has the agent of the installation in this folder restarted, and waits until another one answers, or as long as this.
///
/// # Errors
/// When nothing is installed there, its agent cannot be reached, or it refuses.
pub async fn restart(state: &Path, patience: Duration) -> anyhow::Result<Restarted> {
    let installation = Installation::find(state)?
        .with_context(|| format!("nothing is installed in {}; name its --state-dir", state.display()))?;
    let serve = installation.serve();
    let listen = *serve.listen.first().context("the installation's record names no address")?;
    let token = token::load(&serve.token_file, Owners::UsOrRoot)?;
    let address = reachable(listen);
    let asked = tokio::time::timeout(PATIENCE, ask(address, &token)).await;
    let accepted = asked.with_context(|| format!("the agent on {address} does not answer"))??;
    if sys::is_in_a_call() {
        return Ok(Restarted::UnderWay { drain: Duration::from_millis(accepted.drain_ms) });
    }
    let by = Instant::now() + patience;
    while Instant::now() < by {
        if let Occupant::Agent { agent_id, version } = occupant(&[listen]).await
            && agent_id != accepted.agent_id
        {
            return Ok(Restarted::Answers { before: accepted.agent_id, agent_id, version });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Restarted::NotBack { before: accepted.agent_id })
}

/// On one connection: the agent's proof that it holds the token, and then the request with it.
async fn ask(address: SocketAddr, token: &Token) -> anyhow::Result<RestartAccepted> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("no agent answers on {address}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let talk = async {
        let challenge = Challenge::generate()?;
        let health = request(Method::GET, PATH_HEALTH, address).header(HEADER_CHALLENGE, challenge.to_hex());
        let answer = send(&mut sender, health.body(Body::empty())?).await?;
        let proof = answer.headers().get(HEADER_PROOF).and_then(|proof| Proof::parse(proof.as_bytes()));
        ensure!(
            proof == Some(token.prove(&challenge)),
            "what answers on {address} does not hold the token of this installation; it was not sent there"
        );
        let bearer = Zeroizing::new(format!("Bearer {}", token.expose().as_str()));
        let mut bearer = HeaderValue::from_str(&bearer)?;
        bearer.set_sensitive(true);
        let restart = request(Method::POST, PATH_AGENT_RESTART, address).header(header::AUTHORIZATION, bearer);
        let answer = send(&mut sender, restart.body(Body::empty())?).await?;
        if answer.status() == StatusCode::ACCEPTED {
            return Ok(serde_json::from_slice(answer.body())?);
        }
        let body: ErrorBody = serde_json::from_slice(answer.body())
            .with_context(|| format!("the agent answers {} and does not say why", answer.status()))?;
        let said = body.detail.unwrap_or_else(|| body.error.as_str().to_owned());
        match body.hint {
            Some(hint) => bail!("{said}; {hint}"),
            None => bail!("{said}"),
        }
    };
    let mut connection = std::pin::pin!(connection);
    let mut talk = std::pin::pin!(talk);
    tokio::select! {
        said = &mut talk => said,
        // the connection may end before the last of the answer has been taken from it
        _ = &mut connection => talk.await,
    }
}

fn request(method: Method, path: &str, address: SocketAddr) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, format!("127.0.0.1:{}", address.port()))
}

async fn send(sender: &mut SendRequest<Body>, request: Request<Body>) -> anyhow::Result<axum::http::Response<Bytes>> {
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes();
    Ok(axum::http::Response::from_parts(parts, body))
}
