//! The lock among setups of one home.

use std::{
    fs::{File, TryLockError},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    time::{Duration, Instant},
};

use crate::host::{Error, ErrorKind, Home, Result};

/// Between two tries.
const POLL: Duration = Duration::from_millis(10);

/// Takes the lock of a home, making the home where it is missing; it is given back when the value is dropped.
///
/// # Errors
/// When another setup holds it for longer than `limit`.
pub(super) async fn take(home: &Home, limit: Duration) -> Result<File> {
    let could_not = |what: &str| Error::new(ErrorKind::File, format!("could not {what} {}", home.config().display()));
    // a home that is there is left as it is: it may hold more than pods
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home.config())
        .map_err(|error| could_not("make the folder").with_source(error))?;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(home.config().join(".lock"))
        .map_err(|error| could_not("make the file .lock in").with_source(error))?;
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            Err(TryLockError::WouldBlock) => {
                let detail = format!("another setup has been running for {} s", limit.as_secs_f32());
                return Err(Error::new(ErrorKind::Settings, detail).with_hint("wait for it, or end it, and try again"));
            }
            Err(TryLockError::Error(error)) => return Err(could_not("lock").with_source(error)),
        }
    }
}
