//! Events that come from what is watched anyway: the token and the gates.

use std::sync::Arc;

use tokio::sync::watch::Receiver;

use super::{super::gates::Gates, Bus, ring::now};
use crate::{
    protocol::{EventName, InstallStepEvent, Stage},
    token::Token,
};

fn step(gates: &Gates) -> InstallStepEvent {
    let (stage, waiting_for) = match gates {
        Gates::Waiting(missing) if missing.is_empty() => (Stage::Ready, Vec::new()),
        Gates::Waiting(missing) => (Stage::Installing, missing.to_vec()),
        Gates::Failed(reasons) => (Stage::InstallFailed, reasons.to_vec()),
    };
    InstallStepEvent { ts: now(), stage, waiting_for }
}

/// Tells each step of the guest's installation, that calls are served, each time that comes true, and that the token was replaced; ends with the agent.
pub(in crate::guest) async fn watch(bus: Arc<Bus>, mut token: Receiver<Option<Token>>, mut gates: Receiver<Gates>) {
    let (mut known, mut was_ready) = (None, false);
    // without gates there is nothing to be told of
    let mut seen = Gates::Waiting([].into());
    loop {
        let current = token.borrow_and_update().clone();
        let now_is = gates.borrow_and_update().clone();
        let gates_hold = matches!(&now_is, Gates::Waiting(missing) if missing.is_empty());
        if now_is != seen {
            bus.emit(EventName::InstallStep, &step(&now_is));
            seen = now_is;
        }
        if known.is_some() && known != current {
            bus.emit_plain(EventName::TokenRotated);
        }
        let is_ready = current.is_some() && gates_hold;
        if is_ready && !was_ready {
            bus.emit_plain(EventName::AgentReady);
        }
        (known, was_ready) = (current, is_ready);
        let changed = tokio::select! {
            changed = token.changed() => changed,
            changed = gates.changed() => match changed {
                Ok(()) => Ok(()),
                // without gates nobody looks at them any more
                Err(_) => token.changed().await,
            },
        };
        if changed.is_err() {
            return;
        }
    }
}
