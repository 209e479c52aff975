//! The clients that are attached, counted.

use std::time::Duration;

use tokio::sync::watch;

/// The attached clients: how many there are, and that they are to part.
#[derive(Debug)]
pub(super) struct Attachments {
    count: watch::Sender<usize>,
    ending: watch::Sender<bool>,
}

/// One of them, for as long as it lives.
#[derive(Debug)]
pub(super) struct Attachment(watch::Sender<usize>);

impl Attachments {
    pub(super) fn new() -> Self {
        Self { count: watch::Sender::new(0), ending: watch::Sender::new(false) }
    }

    /// One more. Counted from the request on, so that none is missed between its upgrade and its first word.
    pub(super) fn one(&self) -> Attachment {
        self.count.send_modify(|count| *count += 1);
        Attachment(self.count.clone())
    }

    /// Turns true when they are to part.
    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Lets each have its last status and its close, and waits until they are gone; `false` where some are not by then.
    pub(super) async fn end(&self, limit: Duration) -> bool {
        self.ending.send_replace(true);
        let mut count = self.count.subscribe();
        tokio::time::timeout(limit, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
