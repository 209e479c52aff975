//! The signal after which a stopped process goes on.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::host::{Error, ErrorKind, Result};

/// Tells when the process goes on after it was stopped.
#[derive(Debug)]
pub struct Resumed(Signal);

impl Resumed {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the signal cannot be caught.
    pub fn watch() -> Result<Self> {
        signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))
            .map(Self)
            .map_err(|error| Error::new(ErrorKind::Internal, "could not catch signals").with_source(error))
    }

    /// The next time.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
