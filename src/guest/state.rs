//! What every handler can reach.

use std::{sync::Arc, time::Instant};

use tokio::sync::watch;

use super::{
    Config, account::Account, attachments::Attachments, auth_delay::AuthDelay, calls, counters::Counters, events,
    gates::Gates, log_readers::LogReaders, looks::Looks, random_hex,
};
use crate::{protocol::Stage, token::Token};

/// The agent's state; a clone is another handle to the same.
#[derive(Debug, Clone)]
pub(crate) struct AppState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    identity: Identity,
    account: Account,
    calls: Arc<calls::Calls>,
    attachments: Attachments,
    token: watch::Receiver<Option<Token>>,
    gates: watch::Receiver<Gates>,
    draining: watch::Sender<bool>,
    restart: watch::Sender<bool>,
    looks: Looks,
    auth_delay: Arc<AuthDelay>,
    log_readers: LogReaders,
}

/// Which agent this is, and since when.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// New at each start.
    pub(super) agent_id: String,
    /// RFC 3339, to the second.
    pub(super) started_at: String,
    /// By the clock that never jumps.
    pub(super) started: Instant,
}

impl Identity {
    /// A new one, starting now.
    pub(super) fn generate() -> anyhow::Result<Self> {
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
        Ok(Self { agent_id: random_hex::<16>()?, started_at: now.to_string(), started: Instant::now() })
    }
}

/// How far the guest has come, and what is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readiness {
    pub(super) stage: Stage,
    pub(super) waiting_for: Vec<String>,
}

impl AppState {
    pub(super) fn new(
        config: Config,
        identity: Identity,
        calls: Arc<calls::Calls>,
        token: watch::Receiver<Option<Token>>,
        gates: watch::Receiver<Gates>,
    ) -> Self {
        let account = super::sys::account();
        let draining = watch::Sender::new(false);
        let auth_delay = AuthDelay::new(config.auth_delays);
        Self(Arc::new(Shared {
            config,
            identity,
            account,
            calls,
            attachments: Attachments::new(),
            token,
            gates,
            draining,
            restart: watch::Sender::new(false),
            looks: Looks::default(),
            auth_delay,
            log_readers: LogReaders::new(),
        }))
    }

    /// What runs and waits.
    pub(crate) fn calls(&self) -> &Arc<calls::Calls> {
        &self.0.calls
    }

    /// What it tells of itself.
    pub(super) fn events(&self) -> &Arc<events::Bus> {
        self.0.calls.events()
    }

    /// What the agent counts of itself.
    pub(super) fn counters(&self) -> &Arc<Counters> {
        self.0.calls.counters()
    }

    /// The clients that are attached to calls.
    pub(super) fn attachments(&self) -> &Attachments {
        &self.0.attachments
    }

    /// New at each start of the agent.
    pub(crate) fn agent_id(&self) -> &str {
        &self.0.identity.agent_id
    }

    /// The settings.
    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.0.identity
    }

    pub(super) fn account(&self) -> &Account {
        &self.0.account
    }

    /// The looks at the whole guest.
    pub(super) fn looks(&self) -> &Looks {
        &self.0.looks
    }

    /// The peers that sent wrong tokens.
    pub(super) fn auth_delay(&self) -> &Arc<AuthDelay> {
        &self.0.auth_delay
    }

    /// The readers of logs.
    pub(super) fn log_readers(&self) -> &LogReaders {
        &self.0.log_readers
    }

    /// Completes once no call is taken any more.
    pub(super) async fn draining(&self) {
        drop(self.0.draining.subscribe().wait_for(|draining| *draining).await);
    }

    /// The token in force. The guard keeps the watching task out: it is not held across an `await`.
    pub(super) fn token(&self) -> watch::Ref<'_, Option<Token>> {
        self.0.token.borrow()
    }

    /// From now on no call is taken.
    pub(super) fn start_draining(&self) {
        self.0.draining.send_replace(true);
    }

    /// From now on no call is taken, and the agent ends to be started again; false where it ends for good already.
    pub(super) fn ask_for_restart(&self) -> bool {
        let begins = self.0.draining.send_if_modified(|draining| !std::mem::replace(draining, true));
        if begins {
            self.0.restart.send_replace(true);
        }
        *self.0.restart.borrow()
    }

    /// Completes once the agent is to end and to be started again.
    pub(super) async fn restart_is_asked_for(&self) {
        drop(self.0.restart.subscribe().wait_for(|asked| *asked).await);
    }

    /// Put together at the moment of asking, so that no part of it lags behind another.
    pub(super) fn readiness(&self) -> Readiness {
        let gates = self.0.gates.borrow().clone();
        let (pending, failed) = match &gates {
            Gates::Waiting(pending) => (pending, false),
            Gates::Failed(reasons) => (reasons, true),
        };
        let stage = if *self.0.draining.borrow() {
            Stage::Draining
        } else if failed {
            // before the token: whoever waits for that would wait in vain, and a failure is what ends a wait
            Stage::InstallFailed
        } else if self.0.token.borrow().is_none() {
            Stage::WaitingForToken
        } else if pending.is_empty() {
            Stage::Ready
        } else {
            Stage::Installing
        };
        Readiness { stage, waiting_for: pending.to_vec() }
    }
}
