//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within `limit`, naming `what`.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
