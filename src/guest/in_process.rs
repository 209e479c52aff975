//! An agent inside this process, for examples and for the tests of programs that use one.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use super::{
    Config, second,
    server::{Ended, serve},
};
use crate::token::{Token, replace_private};

/// For an agent that has all it needs to become ready.
const READY: Duration = Duration::from_secs(10);
/// Between two looks whether it is.
const LOOK: Duration = Duration::from_millis(5);

/// An agent that runs in this process, on a free port of loopback, with a token of its own.
///
/// What it is sent runs as this process' user. Dropped, it is cut off; [`InProcessAgent::stop`] ends it in order.
///
/// # Example
/// ```
/// use podlink::{
///     guest::InProcessAgent,
///     host::{AgentClient, ClientSettings},
/// };
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = InProcessAgent::start().await?;
/// let client = AgentClient::new(agent.address(), agent.token().clone(), ClientSettings::DEFAULT)?;
/// assert_eq!(client.whoami().await?.agent_id.len(), 32);
/// agent.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct InProcessAgent {
    address: SocketAddr,
    token: Token,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<anyhow::Result<Ended>>,
    _folder: TempDir,
}

impl InProcessAgent {
    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// When the system gives it no port, no folder or no randomness, or it does not become ready.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("podlink-agent-")
            .tempdir()
            .context("could not make a folder for the agent")?;
        let token = Token::generate()?;
        let token_file = folder.path().join("token");
        replace_private(&token_file, token.expose().as_bytes())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
        let address = listener.local_addr()?;
        let mut config = Config::new(token_file, &[address]);
        config.exec.runs_dir = folder.path().join("runs");
        config.drain = Duration::ZERO;
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { stopped.await.unwrap_or(()) };
        let serving = tokio::spawn(serve(config, vec![listener], shutdown, std::future::pending()));
        let agent = Self { address, token, stop: Some(stop), serving, _folder: folder };
        let ready = async {
            while !second::is_ready(address).await {
                ensure!(!agent.serving.is_finished(), "the agent ended before it was ready");
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        tokio::time::timeout(READY, ready).await.context("the agent did not become ready in time")??;
        Ok(agent)
    }

    /// Where it answers.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its token.
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Ends it and the calls that run in it.
    ///
    /// # Errors
    /// When it had failed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stop.take());
        (&mut self.serving).await.context("the agent ended badly")?.map(drop)
    }
}

impl Drop for InProcessAgent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
