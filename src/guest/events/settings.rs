//! The bounds of the events, all settings so that tests can shorten them.

use std::time::Duration;

/// How many events are kept, and how often a quiet stream gives a sign of life.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Events that are kept for readers that come back or are slow.
    pub most: usize,
    /// Bytes of them in all: a chatty program's output must not take more.
    pub most_bytes: usize,
    /// The longest silence of a stream.
    pub keep_alive: Duration,
    /// Between two events about the failures of one peer: who has no token must not be able to push out what others
    /// want to read.
    pub auth_interval: Duration,
}

impl Settings {
    /// The protocol's.
    pub const DEFAULT: Self = Self {
        most: 4096,
        most_bytes: 16 * 1024 * 1024,
        keep_alive: Duration::from_secs(15),
        auth_interval: Duration::from_secs(5),
    };
}
