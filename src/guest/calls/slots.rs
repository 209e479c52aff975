//! How many calls run at one time, and how many may wait for their turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::no_turn::NoSlot;

/// Slots, and a bounded queue in order of arrival before them.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue: usize,
    longest_wait: Duration,
}

impl Slots {
    /// `slots` at one time, `queue` before them, each for at most `longest_wait`.
    pub(super) fn new(slots: usize, queue: usize, longest_wait: Duration) -> Self {
        let free = Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
        Self { free, waiting: AtomicUsize::new(0), queue, longest_wait }
    }

    /// Takes a slot if one is free at this moment.
    pub(super) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Takes a slot, which is free again when the permit is dropped.
    pub(super) async fn take(&self) -> Result<OwnedSemaphorePermit, NoSlot> {
        // the semaphore is fair: it gives nothing to a newcomer while somebody waits
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = Place::take(&self.waiting, self.queue).ok_or(NoSlot::QueueFull)?;
        match tokio::time::timeout(self.longest_wait, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(NoSlot::WaitedTooLong),
        }
    }
}

/// A place in the queue, given back however the wait ends.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, queue: usize) -> Option<Self> {
        waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < queue).then_some(count + 1))
            .is_ok()
            .then_some(Self(waiting))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_length_and_time() {
        let slots = Arc::new(Slots::new(1, 1, Duration::from_secs(30)));
        let held = slots.take().await.unwrap();
        let second = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.take().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(slots.take().await.unwrap_err(), NoSlot::QueueFull);
        assert_eq!(second.await.unwrap().unwrap_err(), NoSlot::WaitedTooLong);
        drop(held);
        drop(slots.take().await.unwrap());
    }
}
