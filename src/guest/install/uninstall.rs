//! What an installation has set is undone, in the reverse order; each part by itself, so that one that fails leaves no
//! other behind.

use std::{io::ErrorKind, path::Path};

use anyhow::Context as _;

use super::{
    super::sys,
    agent::{self, AgentFile},
    engine::InstallError,
    lock::Lock,
    places,
    record::Record,
    steps::{self, Start},
    tool::Verdict,
};

/// What came of undoing one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The step.
    pub step: &'static str,
    /// What is to be known of it; a failure's reason.
    pub said: Option<String>,
    /// Whether it could not be undone.
    pub failed: bool,
}

/// Takes the installation in this folder out again: what starts the agent, the agent, the firewall's rule, the
/// exclusion from scans, the token and the executable. The logs stay unless `purge` says otherwise, and so does the
/// bundle.
///
/// # Errors
/// When nothing is installed there, or another process works at it.
pub async fn uninstall(state: &Path, purge: bool, say: impl Fn(&Undone)) -> Result<(), InstallError> {
    let record = Record::load(state)?
        .with_context(|| format!("nothing is installed in {}; name its --state-dir", state.display()))?;
    let lock = Lock::take(state).context("the installation's lock cannot be taken")?;
    let Some(lock) = lock else { return Err(InstallError::Busy { state: state.to_owned() }) };
    let places = record.places(state);
    let start = Start::of(&record, state);
    let told = |step, verdict| {
        let (said, failed) = match verdict {
            Verdict::Done(said) => (said, false),
            Verdict::Unavailable(reason) | Verdict::Pending(reason) => (Some(reason), false),
            Verdict::Failed(reason) => (Some(reason), true),
        };
        say(&Undone { step, said, failed });
        failed
    };
    // a kill from here on leaves something that is no longer ready, and can be taken out again
    let mut failed = told("install.done", removed(&places::done_file(state)));
    failed |= told("autostart", sys::unregister(&start).await);
    // an agent that ends takes its calls with it, and so it is the last where this is one of them
    let is_last = sys::is_in_a_call();
    let known = AgentFile::load(state);
    let stop = async |known: Option<AgentFile>| match known {
        Some(known) if known.lives() => agent::stop(&known).await.map_or_else(Verdict::failed, |()| Verdict::DONE),
        _ => Verdict::Done(Some("it does not run".to_owned())),
    };
    if !is_last {
        failed |= told("agent", stop(known.clone()).await);
    }
    failed |= told("token", removed(&places.token_file));
    if let Some(folder) = places.exe.parent() {
        failed |= told("defender", sys::include_in_scans(folder).await);
    }
    failed |= told("firewall", sys::close_firewall(&steps::ports(&record)).await);
    failed |= told("exe", sys::remove_program(&places.exe).map_or_else(Verdict::failed, Verdict::Done));
    if failed {
        // what is left is known by the record, for another try
        return Err(InstallError::Other(anyhow::anyhow!(
            "not all could be undone; see above, mend that and run `podlink agent uninstall` again"
        )));
    }
    let files = [places::agent_file(state), places::record_file(state)];
    for file in files {
        told("state", removed(&file));
    }
    drop(std::fs::remove_dir_all(places::runs(state)));
    if purge {
        drop(lock);
        let purged = fs_err::remove_dir_all(state).map_or_else(Verdict::failed, |()| Verdict::DONE);
        told("logs", purged);
    } else {
        told("logs", Verdict::Done(Some(format!("they stay in {}", state.display()))));
    }
    if is_last {
        told("agent", Verdict::Done(Some("it is asked to end now".to_owned())));
        told("agent", stop(known).await);
    }
    Ok(())
}

fn removed(path: &Path) -> Verdict {
    match std::fs::remove_file(path) {
        Ok(()) => Verdict::DONE,
        Err(error) if error.kind() == ErrorKind::NotFound => Verdict::DONE,
        Err(error) => Verdict::Failed(format!("{} could not be removed: {error}", path.display())),
    }
}
