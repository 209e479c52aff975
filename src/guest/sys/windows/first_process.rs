//! Windows gives orphans to nobody: there is nothing to reap.

/// A child that somebody waits for, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct WaitedFor;

impl WaitedFor {
    /// Nothing to be kept from anybody.
    pub(crate) const fn new(_pid: u32) -> Self {
        Self
    }
}

/// Ends at once.
#[expect(clippy::unused_async, reason = "the Unix half waits")]
pub(in crate::guest) async fn reap_orphans() {}
