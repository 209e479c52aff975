//! The looks at the guest's system that are being taken, one of each kind at most.

use std::time::Duration;

use super::snapshots::Snapshots;

/// One of each kind.
#[derive(Debug, Default)]
pub(super) struct Looks {
    pub(super) processes: Snapshots,
    pub(super) sockets: Snapshots,
    pub(super) info: Snapshots,
    pub(super) packages: Snapshots,
    pub(super) metrics: Snapshots,
}

impl Looks {
    /// How long a caller waits for a look: a thousand times what one of 500 processes takes.
    pub(super) const PATIENCE: Duration = Duration::from_secs(10);
}
