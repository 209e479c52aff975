//! What lies on disk and nobody needs any more: logs that have been turned over, and what dead agents left.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{calls::Calls, config::Keep, log::turned_over};

/// Hex digits of an agent's id.
const ID_DIGITS: usize = 32;

/// Sweeps, now and from time to time, for as long as the agent lives.
pub(super) async fn sweep(calls: Arc<Calls>, logs: Vec<PathBuf>, keep: Keep) {
    loop {
        let (logs, runs) = (logs.clone(), calls.settings().runs_dir.clone());
        let swept = tokio::task::spawn_blocking(move || {
            for log in &logs {
                sweep_log(log, keep.age);
            }
            sweep_runs(&runs, keep.age);
        });
        if let Err(error) = swept.await {
            tracing::error!(%error, "sweeping failed");
        }
        tokio::time::sleep(keep.interval).await;
        calls.sweep().await;
    }
}

/// The file that is written to is never among them.
fn sweep_log(log: &Path, age: Duration) {
    let Ok(old) = turned_over(log) else { return };
    for (_, path) in old.into_iter().filter(|(_, path)| is_old(path, age)) {
        // another agent may still write to it
        let Ok(file) = File::open(&path) else { continue };
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            remove(&path, std::fs::remove_file(&path));
        }
    }
}

/// Folders that look like an agent's and have no lock by which it could be known that it lives; those that have one are
/// swept as soon as it is free.
fn sweep_runs(runs: &Path, age: Duration) {
    let Ok(entries) = std::fs::read_dir(runs) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_agents = name.to_str().is_some_and(|name| {
            name.len() == ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_agents && is_folder && !path.join("lock").exists() && is_old(&path, age) {
            remove(&path, std::fs::remove_dir_all(&path));
        }
    }
}

fn is_old(path: &Path, age: Duration) -> bool {
    let written = std::fs::symlink_metadata(path).and_then(|meta| meta.modified());
    // a time in the future is none to go by
    written.is_ok_and(|written| SystemTime::now().duration_since(written).is_ok_and(|since| since > age))
}

fn remove(path: &Path, removed: std::io::Result<()>) {
    match removed {
        Ok(()) => tracing::info!(path = %path.display(), "removed what was old"),
        Err(error) => tracing::warn!(path = %path.display(), %error, "could not remove what is old"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn aged(path: &Path, days: u32) {
        let file = File::options().append(true).create(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - days * DAY).unwrap();
    }

    #[test]
    fn old_logs_go_and_those_in_use_stay() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for (name, days) in [("log", 99), ("log.1", 29), ("log.2", 31), ("log.3", 31), ("log.x", 99), ("log.01", 99)] {
            aged(&at(name), days);
        }
        let used = File::open(at("log.3")).unwrap();
        used.lock().unwrap();
        sweep_log(&at("log"), Keep::DEFAULT.age);
        let left = |name: &&str| at(name).exists();
        let names = ["log", "log.1", "log.2", "log.3", "log.x", "log.01"];
        let left: Vec<&str> = names.into_iter().filter(left).collect();
        assert_eq!(left, ["log", "log.1", "log.3", "log.x", "log.01"]);
    }

    #[test]
    fn half_made_folders_of_agents_go_and_no_others() {
        let top = tempfile::tempdir().unwrap();
        let old = ["a".repeat(32), "b".repeat(32), "home".to_owned()].map(|name| top.path().join(name));
        for folder in &old {
            std::fs::create_dir(folder).unwrap();
        }
        fs_err::write(old[1].join("lock"), "").unwrap();
        sweep_runs(top.path(), Duration::from_hours(1));
        assert!(old.iter().all(|folder| folder.exists()));
        std::thread::sleep(Duration::from_millis(20));
        sweep_runs(top.path(), Duration::ZERO);
        assert_eq!(old.map(|folder| folder.exists()), [false, true, true]);
    }
}
