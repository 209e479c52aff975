//! The readers of logs: how many there may be, and that they are to end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Readers at one time.
const MOST_READERS: usize = 32;

/// The readers of an agent's logs.
#[derive(Debug)]
pub(super) struct LogReaders {
    places: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl LogReaders {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST_READERS)), closing: watch::Sender::new(false) }
    }

    /// A place for one more, where there is one.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Whether they are to end.
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Lets every reader have what is there, and its end.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}
