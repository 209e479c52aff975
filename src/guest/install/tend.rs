//! The agent's part: it takes the token over whenever the bundle has one, and takes up what an installer has left.

use std::{path::PathBuf, time::Duration};

use tokio::sync::watch;

use super::{
    adopt::{self, Adopted},
    engine::{Engine, Outcome},
    lock::Lock,
    look::Installation,
    record::Record,
    steps,
    tool::Verdict,
};
use crate::{
    protocol::StepState,
    token::{Owners, load},
};

/// What to tend, and how often.
#[derive(Debug, Clone)]
pub(in crate::guest) struct TendSettings {
    pub(in crate::guest) installation: Installation,
    pub(in crate::guest) interval: Duration,
}

/// Tends the installation until `stop` says that the agent ends.
pub(in crate::guest) async fn tend(settings: TendSettings, stop: watch::Receiver<bool>) {
    let mut said: Option<Adopted> = None;
    let mut stopping = stop.clone();
    loop {
        let places = settings.installation.places().clone();
        let adopted = tokio::task::spawn_blocking(move || adopt::adopt(&places)).await;
        match adopted {
            Ok(Ok(adopted)) => {
                if said.as_ref() != Some(&adopted) {
                    tell(&adopted);
                }
                said = Some(adopted);
            }
            Ok(Err(error)) => tracing::error!("the token could not be taken over: {error:#}"),
            Err(_) => return, // the runtime is going down
        }
        if !settings.installation.is_complete()
            && let Err(error) = take_up(&settings.installation, &stop).await
        {
            tracing::error!("the installation could not be taken up: {error:#}");
        }
        tokio::select! {
            () = tokio::time::sleep(settings.interval) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

fn tell(adopted: &Adopted) {
    match adopted {
        Adopted::Taken => tracing::info!("the token was taken over from the bundle"),
        Adopted::Left(reason) => tracing::warn!(reason, "the bundle's token is left where it is"),
        Adopted::Have | Adopted::Missing(_) => {}
    }
}

/// Takes the steps that are left, where nobody else does and none that is required has failed.
async fn take_up(installation: &Installation, stop: &watch::Receiver<bool>) -> anyhow::Result<()> {
    let state: PathBuf = installation.state().to_owned();
    let Some(_lock) = Lock::take(&state)? else { return Ok(()) };
    // only now: whoever held the lock may have come to the end meanwhile
    if installation.is_complete() {
        return Ok(());
    }
    let Some(record) = Record::load(&state)? else { return Ok(()) };
    if record.failure().is_some() {
        return Ok(());
    }
    let is_token_alone = {
        let mut missing = record.missing();
        let first = missing.next();
        first.is_some_and(|step| step.name == "token" && step.state == StepState::Pending) && missing.next().is_none()
    };
    if is_token_alone && load(&record.serve().token_file, Owners::UsOrRoot).is_err() {
        return Ok(()); // it is what is waited for
    }
    match Engine::resumed(record, &state, stop.clone()).run(None).await? {
        Outcome::Failed { step, reason } => tracing::error!(step, reason, "the installation failed"),
        outcome => tracing::info!(?outcome, "the installation was taken up"),
    }
    Ok(())
}

/// Opens the firewall for this start of the agent, where rules do not last.
pub(in crate::guest) async fn open_firewall(installation: Installation) {
    let Ok(Some(record)) = Record::load(installation.state()) else { return };
    let ports = steps::ports(&record);
    if !super::super::sys::FIREWALL_FORGETS || ports.is_empty() {
        return;
    }
    match super::super::sys::open_firewall(&ports).await {
        Verdict::Done(said) => tracing::info!(?ports, said, "the firewall lets callers in"),
        Verdict::Unavailable(reason) => tracing::debug!(reason, "no firewall to open"),
        Verdict::Failed(reason) | Verdict::Pending(reason) => {
            tracing::error!(
                ?ports,
                reason,
                "the firewall could not be opened: callers from outside may not reach the agent"
            );
        }
    }
}
