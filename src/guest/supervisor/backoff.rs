//! How long to wait before an agent is started again.

use std::time::Duration;

/// The pauses between an agent's end and the next one's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first crash; it doubles with each that follows.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// An agent that has lived so long was well: its end is a first one again.
    pub steady: Duration,
}

impl Backoff {
    /// A single crash is hardly noticed, and one that comes back at once costs a start a minute.
    pub const DEFAULT: Self =
        Self { first: Duration::from_millis(250), longest: Duration::from_mins(1), steady: Duration::from_mins(1) };

    pub(super) const fn begin(self) -> Pauses {
        Pauses { settings: self, in_a_row: 0, count: 0 }
    }
}

/// The pauses as they come.
#[derive(Debug)]
pub(super) struct Pauses {
    settings: Backoff,
    in_a_row: u32,
    count: u64,
}

impl Pauses {
    /// The pause after an agent that lived so long.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= self.settings.steady {
            self.in_a_row = 0;
        }
        let factor = 1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.count += 1;
        self.settings.first.saturating_mul(factor).min(self.settings.longest)
    }

    /// How many there have been.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_a_bound_and_begins_anew_after_a_steady_life() {
        let mut pauses = Backoff::DEFAULT.begin();
        let at_once = Duration::from_millis(20);
        let seen: Vec<u128> = (0..10).map(|_| pauses.after(at_once).as_millis()).collect();
        assert_eq!(seen, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        for _ in 0..100 {
            assert_eq!(pauses.after(at_once), Duration::from_mins(1), "no overflow");
        }
        assert_eq!(pauses.after(Duration::from_mins(1)).as_millis(), 250);
        assert_eq!(pauses.after(at_once).as_millis(), 500);
        assert_eq!(pauses.count(), 112);
    }
}
