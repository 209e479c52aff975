//! Readiness: which gates do not hold yet.
//!
//! ```text
//! waiting_for_token ──token──▶ installing ──all gate files──▶ ready ──SIGTERM──▶ draining
//!                                  │  ▲
//!                     <gate>.failed ▼  │ gone, or the gate is there
//!                              install_failed
//! ```
//!
//! A failure is told with or without a token: what has failed will not bring one.
//!
//! Implementation note: a task looks at the files and publishes what it saw, so that `/health` reads memory alone and
//! answers at once even where the file system hangs. It looks again and again, in each stage: a gate that goes away
//! takes readiness with it.

use std::{
    ffi::OsString,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use super::install::Installation;

/// Bytes of a failed installation's reason that are told.
const MAX_REASON: u64 = 1024;

/// What to look at, and how often.
#[derive(Debug, Clone)]
pub(super) struct GateSettings {
    pub(super) files: Vec<PathBuf>,
    /// One more gate, which opens when it is complete.
    pub(super) installation: Option<Installation>,
    pub(super) interval: Duration,
}

/// What was seen of the gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gates {
    /// These do not hold yet; empty when all do.
    Waiting(Arc<[String]>),
    /// The installation gave up, for these reasons.
    Failed(Arc<[String]>),
}

impl Gates {
    /// Before the first look: none hold.
    pub(super) fn unseen(settings: &GateSettings) -> Self {
        let install = settings.installation.iter().map(|_| "install".to_owned());
        Self::Waiting(settings.files.iter().map(|file| file.display().to_string()).chain(install).collect())
    }

    fn look(files: &[PathBuf], installation: Option<&Installation>) -> Self {
        let missing: Vec<&PathBuf> = files.iter().filter(|file| !file.exists()).collect();
        let mut failed: Vec<String> = missing.iter().filter_map(|file| failure_of(file)).collect();
        let mut waiting: Vec<String> = missing.iter().map(|file| file.display().to_string()).collect();
        match installation.map_or_else(|| Ok(Vec::new()), Installation::gate) {
            Ok(steps) => waiting.extend(steps),
            Err(reason) => failed.push(reason),
        }
        if failed.is_empty() { Self::Waiting(waiting.into()) } else { Self::Failed(failed.into()) }
    }
}

/// Why the gate will not be opened, if its installer has left word: in `install.done.failed` or `install.failed`
/// for the gate `install.done`.
fn failure_of(gate: &Path) -> Option<String> {
    let mut appended = OsString::from(gate);
    appended.push(".failed");
    let file = [PathBuf::from(appended), gate.with_extension("failed")]
        .into_iter()
        .filter(|path| path.is_file()) // a pipe would never end
        .find_map(|path| fs_err::File::open(path).ok())?;
    let mut reason = Vec::new();
    // a reason that cannot be read is still a failure
    file.take(MAX_REASON).read_to_end(&mut reason).ok();
    let reason = String::from_utf8_lossy(&reason);
    let reason = reason.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason.join("; ") };
    Some(format!("{}: {reason}", gate.display()))
}

/// Publishes the state of the gates; ends when nobody listens any more.
pub(super) async fn watch(settings: GateSettings, publish: watch::Sender<Gates>) {
    loop {
        let (files, installation) = (settings.files.clone(), settings.installation.clone());
        if let Ok(seen) = tokio::task::spawn_blocking(move || Gates::look(&files, installation.as_ref())).await {
            publish.send_if_modified(|known| {
                let changed = *known != seen;
                if changed {
                    match &seen {
                        Gates::Waiting(missing) if missing.is_empty() => tracing::info!("all gates hold"),
                        Gates::Waiting(missing) => tracing::info!(?missing, "waiting for gates"),
                        Gates::Failed(reasons) => tracing::error!(?reasons, "the guest's installation failed"),
                    }
                    *known = seen;
                }
                changed
            });
        }
        if settings.files.is_empty() && settings.installation.is_none() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(settings.interval) => {}
            () = publish.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_the_disk() {
        let top = tempfile::tempdir().unwrap();
        let (one, two) = (top.path().join("one.done"), top.path().join("two.done"));
        let files = [one.clone(), two.clone()];
        let waiting =
            |paths: &[&PathBuf]| Gates::Waiting(paths.iter().map(|path| path.display().to_string()).collect());
        assert_eq!(Gates::look(&files, None), waiting(&[&one, &two]));
        fs_err::write(&one, "").unwrap();
        assert_eq!(Gates::look(&files, None), waiting(&[&two]));

        for failed in ["two.failed", "two.done.failed"] {
            fs_err::write(top.path().join(failed), "no disk\r\nleft\u{1b}[0m").unwrap();
            let Gates::Failed(reasons) = Gates::look(&files, None) else { panic!("{failed} was not seen") };
            assert_eq!(reasons[..], [format!("{}: no disk; left; [0m", two.display())]);
            fs_err::remove_file(top.path().join(failed)).unwrap();
        }
        fs_err::write(top.path().join("two.failed"), "").unwrap();
        assert!(matches!(Gates::look(&files, None), Gates::Failed(_)));
        fs_err::write(&two, "").unwrap();
        assert_eq!(Gates::look(&files, None), waiting(&[]), "a gate that holds outweighs an older failure");
    }
}
