//! Why a call did not come to its turn.

/// Why a call got no place or no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// Another call of the session runs or waits, and this one was not to wait.
    Busy,
    /// Too many calls wait.
    Full,
    /// Its turn did not come in time.
    WaitedTooLong,
}

/// Why a call got no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// Every place in the queue is taken.
    QueueFull,
    /// Its turn did not come in time.
    WaitedTooLong,
}
