//! Locks among commands that would get into each other's way.

use std::{
    fs::{File, TryLockError},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use super::{Error, ErrorKind, Result};

/// Between two tries.
const POLL: Duration = Duration::from_millis(10);

/// Takes the lock at `path`, made where it is missing; it is given back when the value is dropped.
///
/// # Errors
/// When somebody holds it for longer than `limit`; `who` says what that is: `another setup`.
pub(super) async fn take(path: &Path, who: &str, limit: Duration) -> Result<File> {
    let could_not = |what: &str| Error::new(ErrorKind::File, format!("could not {what} the lock {}", path.display()));
    // NONBLOCK: a pipe that somebody planted must not hang us
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| could_not("make").with_source(error))?;
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            Err(TryLockError::WouldBlock) => {
                let detail = format!("{who} has been running for {} s", limit.as_secs_f32());
                return Err(Error::new(ErrorKind::Settings, detail).with_hint("wait for it, or end it, and try again"));
            }
            Err(TryLockError::Error(error)) => return Err(could_not("take").with_source(error)),
        }
    }
}
