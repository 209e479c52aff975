//! The agent's pid, in a file that it holds locked for as long as it lives.
//!
//! Whoever wants to know whether the agent lives tries the lock: a pid alone may long belong to another process. Behind
//! the pid stands when the process started (clock ticks since boot, as Linux counts), so that the number of an agent
//! before, which stands there until the new one has written its own, is not taken for this one's.

use std::{
    fs::{File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The locked file; dropping it, or the end of the process however it comes, lets go of the lock.
#[derive(Debug)]
pub struct PidFile {
    _locked: File,
}

/// Why the file could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// Another process holds the lock.
    #[error("{path} is held by another agent; stop that one, or give this one a pid file of its own")]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("cannot write the pid file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whoever asks whether an agent lives holds the lock for a moment; another agent holds it for longer.
const GLANCE: Duration = Duration::from_millis(500);

/// `<pid> <start>`, or the pid alone where the system does not tell.
fn identity() -> String {
    let pid = std::process::id();
    super::sys::start_time(pid).map_or_else(|| pid.to_string(), |started| format!("{pid} {started}"))
}

impl PidFile {
    /// Locks the file, made where it is missing, and writes this process' pid into it.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be written.
    pub fn take(path: &Path) -> Result<Self, PidFileError> {
        let failed = |source| PidFileError::Io { path: path.to_owned(), source };
        let mut file = super::sys::open_private_append(path).map_err(failed)?;
        let deadline = Instant::now() + GLANCE;
        loop {
            match super::sys::try_lock(&file) {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => return Err(PidFileError::Held { path: path.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        super::sys::truncate(&file, 0).map_err(failed)?;
        writeln!(file, "{}", identity()).map_err(failed)?;
        Ok(Self { _locked: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_once_and_let_go_of() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("pid");
        fs_err::write(&path, "999999999999 from a crash").unwrap();
        let held = PidFile::take(&path).unwrap();
        assert!(fs_err::read_to_string(&path).unwrap().starts_with(&format!("{} ", std::process::id())));
        assert!(matches!(PidFile::take(&path), Err(PidFileError::Held { .. })));
        drop(held);
        PidFile::take(&path).unwrap();
    }
}
