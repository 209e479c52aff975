//! How long a peer that ought to give signs of life is waited for.
//!
//! Implementation note: what is counted is missed signs, one interval at a time, and only while somebody waits. So
//! neither a reader that pauses nor a process that was stopped for an hour takes its own absence for the peer's.

use std::{future::Future, pin::Pin, pin::pin, time::Duration};

use tokio::time::{Sleep, sleep};

/// Signs that may be missing in a row before the peer counts as dead.
const MISSED: u32 = 3;

/// Why waiting was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// No sign of life came.
    Silent,
    /// All that may be waited in sum has been.
    Overdue,
}

/// The patience with one peer. Dropping a wait loses nothing of it.
#[derive(Debug)]
pub(super) struct Patience {
    interval: Duration,
    /// What may be waited in sum, where that has a bound.
    left: Option<Duration>,
    missed: u32,
    slice: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Patience {
    /// With a peer that gives a sign of life at each interval.
    pub(super) const fn new(interval: Duration, in_sum: Option<Duration>) -> Self {
        Self { interval, left: in_sum, missed: 0, slice: None }
    }

    /// Waits for something that is a sign of life.
    pub(super) async fn wait<T>(&mut self, sign: impl Future<Output = T>) -> Result<T, GivenUp> {
        let mut sign = pin!(sign);
        loop {
            let length = self.left.map_or(self.interval, |left| left.min(self.interval));
            let (length, slice) = self.slice.get_or_insert_with(|| (length, Box::pin(sleep(length))));
            let length = *length;
            tokio::select! {
                biased;
                value = &mut sign => {
                    let unspent = slice.deadline().saturating_duration_since(tokio::time::Instant::now());
                    self.spend(length.saturating_sub(unspent));
                    self.missed = 0;
                    return Ok(value);
                }
                () = slice.as_mut() => {
                    self.spend(length);
                    self.missed += 1;
                    if self.left == Some(Duration::ZERO) {
                        return Err(GivenUp::Overdue);
                    }
                    if self.missed >= MISSED {
                        return Err(GivenUp::Silent);
                    }
                }
            }
        }
    }

    /// Begins anew, with another connection.
    pub(super) fn rest(&mut self) {
        self.missed = 0;
        self.slice = None;
    }

    fn spend(&mut self, time: Duration) {
        self.slice = None;
        self.left = self.left.map(|left| left.saturating_sub(time));
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn three_missed_signs_are_a_dead_peer_also_where_waits_are_dropped() {
        let mut patience = Patience::new(SECOND, None);
        for _ in 0..5 {
            let wait = tokio::time::timeout(SECOND / 2, patience.wait(pending::<()>()));
            wait.await.unwrap_err();
        }
        assert_eq!(patience.wait(pending::<()>()).await, Err(GivenUp::Silent));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_pauses_is_not_the_peers_silence() {
        let mut patience = Patience::new(SECOND, Some(10 * SECOND));
        tokio::time::timeout(SECOND / 2, patience.wait(pending::<()>())).await.unwrap_err();
        tokio::time::sleep(1000 * SECOND).await;
        assert_eq!(patience.wait(ready(7)).await, Ok(7));
        tokio::time::sleep(1000 * SECOND).await;
        let wait = tokio::time::timeout(SECOND * 2 + SECOND / 2, patience.wait(pending::<()>()));
        wait.await.unwrap_err();
        assert_eq!(patience.wait(async { 8 }).await, Ok(8), "a sign after two missed ones");
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_without_end_are_overdue() {
        let mut patience = Patience::new(SECOND, Some(5 * SECOND));
        let begun = tokio::time::Instant::now();
        let given_up = loop {
            if let Err(given_up) = patience.wait(sleep(SECOND * 3 / 4)).await {
                break given_up;
            }
        };
        assert_eq!(given_up, GivenUp::Overdue);
        assert_eq!(begun.elapsed().as_secs(), 5);
    }
}
