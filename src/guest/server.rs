//! The agent's life: accept, serve, drain, end.
//!
//! ```text
//! bound ──▶ accepting ──shutdown──▶ draining ──calls ended or killed──▶ closing ──▶ returned
//! ```
//!
//! While it drains the agent still accepts, so that `/health` can say `draining` and new calls are told
//! `agent_stopping` rather than nothing; the listeners close once the last call has its answer.

use std::{future::Future, io, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

use super::{
    Config, calls,
    connection::{Peer, Standing, converse},
    events, gates, install,
    router::router,
    state::{AppState, Identity},
};
use crate::{
    protocol::EventName,
    token::{self, Owners},
};

/// Connections beyond the limit that may ask for `/health`, and as many of strangers that are told to go.
const LOBBY: usize = 64;

/// For answers that are on their way when the last call has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// Beyond the drain: for the kills after it, before the agent ends all the same.
const KILL_MARGIN: Duration = Duration::from_secs(7);

/// After an accept that failed for want of something (file descriptors, memory).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How an agent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// As it was told to.
    Stopped,
    /// To be started again.
    ToRestart,
}

/// Runs an agent on these listeners until `shutdown` completes, then lets calls end and returns; once `hurry`
/// completes as well, calls are not waited for but killed. A caller's `POST /agent/restart` does as `shutdown` does.
///
/// `max_connections` are served at one time. Those beyond it wait in a lobby of 64 for at most two seconds each, where
/// `/health` is answered and everything else is `queue_full`; beyond that, connections are closed at once. Peers that
/// are not let in have a lobby of their own, where everything is `forbidden_peer`.
///
/// # Errors
/// When the agent cannot be set up; nothing that a caller does ends it.
pub async fn serve(
    config: Config,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) -> anyhow::Result<Ended> {
    ensure!(!listeners.is_empty(), "an agent needs an address to listen on");
    super::sys::raise_file_limit();
    let identity = Identity::generate()?;
    let bus = events::Bus::new(&identity.agent_id, &config.events);
    config.log_tap.connect(&bus);
    let calls = calls::Calls::new(config.exec.clone(), identity.agent_id.clone(), Arc::clone(&bus))
        .await
        .context("cannot set up the running of calls")?;
    let mut background = JoinSet::new();
    background.spawn(super::sys::reap_orphans());
    let (token_sender, token) = watch::channel(None);
    background.spawn(token::watch(
        config.token_file.clone(),
        Owners::UsOrRoot,
        config.token_watch.clone(),
        token_sender,
    ));
    let gate_settings = config.gate_settings();
    let (gate_sender, gates) = watch::channel(gates::Gates::unseen(&gate_settings));
    background.spawn(gates::watch(gate_settings, gate_sender));
    background.spawn(Arc::clone(&bus).tend());
    background.spawn(events::watch(Arc::clone(&bus), token.clone(), gates.clone()));

    background.spawn(super::sweep::sweep(Arc::clone(&calls), config.log_files.clone(), config.keep));

    let (drain, kill_grace) = (config.drain, config.exec.kill_grace);
    let state = AppState::new(config, identity, calls, token, gates);
    announce(&state, &listeners)?;
    let (end_tending, tending_ends) = watch::channel(false);
    let tending = state.config().tend_settings().map(|settings| {
        background.spawn(install::open_firewall(settings.installation.clone()));
        tokio::spawn(install::tend(settings, tending_ends))
    });

    let doors = Doors::new(state.config());
    state.counters().watch_places(&doors.served, state.config().max_connections);
    let app = router(state.clone());
    let (stop, stopping) = watch::channel(false);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, state.clone(), app.clone(), doors.clone(), stopping.clone()));
    }

    let mut shutdown = std::pin::pin!(shutdown);
    let restart = tokio::select! {
        () = &mut shutdown => false,
        () = state.restart_is_asked_for() => true,
    };
    tracing::info!(?drain, restart, "stopping: no new calls; those that run may end");
    state.start_draining();
    bus.emit_plain(EventName::AgentStopping);
    end_tending.send_replace(true);
    let limit = drain + 2 * kill_grace + KILL_MARGIN;
    let stopped = async {
        tokio::select! {
            () = state.calls().stop(drain) => {}
            () = async { hurry.await; state.calls().stop(Duration::ZERO).await } => {}
        }
    };
    if tokio::time::timeout(limit, stopped).await.is_err() {
        tracing::error!(?limit, "calls did not end in time; ending without them");
    }
    if let Some(tending) = tending
        && tokio::time::timeout(KILL_MARGIN, tending).await.is_err()
    {
        tracing::error!("a hook of the installation did not end in time; the next agent looks for it");
    }
    bus.close();
    stop.send_replace(true);
    state.log_readers().close();
    if !state.attachments().end(FAREWELL).await {
        tracing::info!("ending with attached clients that have not taken their last words");
    }
    while accepting.join_next().await.is_some() {}
    tracing::info!("stopped");
    // who has told it to stop since wants it to stay so
    let ended = tokio::select! {
        biased;
        () = &mut shutdown, if restart => Ended::Stopped,
        () = std::future::ready(()) => if restart { Ended::ToRestart } else { Ended::Stopped },
    };
    Ok(ended)
}

fn announce(state: &AppState, listeners: &[TcpListener]) -> anyhow::Result<()> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
    let peers = state.config().allow_peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    tracing::info!(
        agent_id = state.agent_id(),
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        ?addresses,
        peers,
        "agent started"
    );
    if let Some(installation) = &state.config().installation {
        install::announce(installation, state.agent_id())
            .context("cannot leave word in the installation's state which agent runs")?;
    }
    if addresses.iter().all(|address| address.ip().to_canonical().is_loopback()) {
        tracing::info!("listening on loopback alone: nothing outside this system reaches the agent");
    }
    Ok(())
}

/// The places for connections, shared by all listeners.
#[derive(Debug, Clone)]
struct Doors {
    served: Arc<Semaphore>,
    lobby: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Doors {
    fn new(config: &Config) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { served: places(config.max_connections), lobby: places(LOBBY), strangers: places(LOBBY) }
    }

    /// Where a connection may go, with its place there; `None` when all is full.
    fn place(&self, let_in: bool) -> Option<(Standing, OwnedSemaphorePermit)> {
        let free = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        if !let_in {
            return free(&self.strangers).map(|place| (Standing::Stranger, place));
        }
        free(&self.served)
            .map(|place| (Standing::Served, place))
            .or_else(|| free(&self.lobby).map(|place| (Standing::Lobby, place)))
    }
}

async fn accept(
    listener: TcpListener,
    state: AppState,
    router: Router,
    doors: Doors,
    mut stopping: watch::Receiver<bool>,
) {
    let agent_id: Arc<str> = state.agent_id().into();
    let mut connections = JoinSet::new();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, address): (TcpStream, _) = match accepted {
            Ok(accepted) => accepted,
            // the caller was gone before we came to it
            Err(error) if is_the_callers(&error) => continue,
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "cannot accept connections for now; trying again");
                }
                failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if failing {
            tracing::info!("accepting connections again");
            failing = false;
        }
        state.counters().connections.add_one();
        let let_in = state.config().allow_peers.iter().any(|network| network.contains(address.ip()));
        let Some((standing, place)) = doors.place(let_in) else { continue };
        let (router, deadlines) = (router.clone(), state.config().deadlines.clone());
        let (agent_id, stopping) = (Arc::clone(&agent_id), stopping.clone());
        let peer = Peer { address, standing };
        connections.spawn(converse(stream, place, peer, router, deadlines, agent_id, stopping));
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, all_ended).await.is_err() {
        tracing::info!(open = connections.len(), "ending with callers that have not taken their answers");
    }
}

fn is_the_callers(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused)
}
