//! The files of runs: scripts and input, in folders that nobody else can look into, gone after the run.
//!
//! `<runs>/<agent id>/lock` is locked for as long as the agent lives; `<runs>/<agent id>/<process id>/` holds the
//! files of one run. So what an agent that was killed left behind is told from what a living one needs, and the
//! runs that it had not ended are known by their folders.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::super::sys::{TreeHome, create_private, create_private_dir, is_held_open};
use crate::token::ensure_private_dir;

/// How often the folder is made: a sweeper that takes it away does so once, for the next time it finds it locked.
const OPENS: usize = 20;

/// A run's folder under this name belongs to a run that has ended, and could not be removed.
const ENDED: &str = "ended-";

/// How long a file that somebody has open is waited for before its folder is left for the next agent.
const HELD_FOR: Duration = Duration::from_secs(2);

/// Between two tries to remove it.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// This agent's folder of runs.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    alive: Option<File>,
}

impl Runs {
    /// Makes this agent's folder below `top`.
    ///
    /// # Errors
    /// When `top` is another user's, a link, or cannot be written.
    pub(crate) fn open(top: &Path, agent_id: &str) -> anyhow::Result<Self> {
        ensure_private_dir(top).context("the folder for the files of runs cannot be used")?;
        let folder = top.join(agent_id);
        for _ in 0..OPENS {
            ensure_private_dir(&folder)?;
            let lock = folder.join("lock");
            let alive = match create_private(&lock) {
                Ok(alive) => alive,
                // swept between the two steps, or the lock of a try before this
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => continue,
                Err(error) => return Err(error).context("the folder for the files of runs cannot be used"),
            };
            // a sweeper may have taken it for a dead agent's in the instant before it is locked
            alive.lock()?;
            if lock.exists() {
                return Ok(Self { folder, alive: Some(alive) });
            }
        }
        anyhow::bail!("the folder for the files of runs is removed by others again and again");
    }

    /// Removes what agents that were killed left below `top`, and ends the runs that they had not ended.
    pub(crate) async fn sweep(top: &Path, trees: &TreeHome) {
        let Ok(entries) = std::fs::read_dir(top) else { return };
        for folder in entries.flatten().map(|entry| entry.path()) {
            let Ok(lock) = OpenOptions::new().write(true).open(folder.join("lock")) else { continue };
            if lock.try_lock().is_err() {
                continue; // its agent lives
            }
            for process_id in names(&folder).into_iter().filter(|name| name != "lock" && !name.starts_with(ENDED)) {
                let tree = trees.find(&process_id);
                let at_once = std::time::Instant::now();
                let ended = tree.end(|| at_once).await;
                tree.release();
                tracing::warn!(process_id, ?ended, "swept a call that an agent before this one had not ended");
            }
            let removed = std::fs::remove_dir_all(&folder);
            // first under the lock, so that nobody takes the folder for theirs meanwhile; some systems keep a file, and so its
            // folder, for as long as it is open
            drop(lock);
            if removed.is_err()
                && let Err(error) = remove_soon(folder.clone()).await
            {
                let folder = folder.display();
                tracing::warn!(%error, %folder, "could not remove what an agent before this one left behind");
            }
        }
    }

    /// The folder of one run.
    pub(super) fn folder_of(&self, process_id: &str) -> std::io::Result<RunFolder> {
        let path = self.folder.join(process_id);
        match create_private_dir(&path) {
            // a script has removed it all
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ensure_private_dir(&self.folder).map_err(std::io::Error::other)?;
                create_private_dir(&path)?;
            }
            made => made?,
        }
        Ok(RunFolder { path })
    }
}

/// An agent that ends in order leaves nothing.
impl Drop for Runs {
    fn drop(&mut self) {
        // some systems keep a file, and so its folder, for as long as it is open
        drop(self.alive.take());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Removes a folder and what is in it, if it is there. Where somebody has a file in it open, such as a process whose end is
/// not through, a scanner of viruses, or another agent that looks whose it is, this is tried again for a moment.
fn remove(folder: &Path) -> std::io::Result<()> {
    patiently(|| match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    })
}

async fn remove_soon(folder: PathBuf) -> std::io::Result<()> {
    tokio::task::spawn_blocking(move || remove(&folder)).await.map_err(std::io::Error::other)?
}

fn patiently(mut action: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let deadline = Instant::now() + HELD_FOR;
    loop {
        match action() {
            Err(error) if is_held_open(&error) && Instant::now() < deadline => std::thread::sleep(BETWEEN_TRIES),
            done => return done,
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The folder of one run; dropping it removes it.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Writes a file for the run to read, and returns its path.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> std::io::Result<PathBuf> {
        let path = self.path.join(name);
        create_private(&path)?.write_all(content)?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // first the name, which no script can keep from changing: what is left under the old one counts as running
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let ended = self.path.with_file_name(format!("{ENDED}{name}"));
        let renamed = patiently(|| std::fs::rename(&self.path, &ended));
        let removed = renamed.and_then(|()| remove(&ended));
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %self.path.display(), "could not remove the files of a run");
        }
    }
}
