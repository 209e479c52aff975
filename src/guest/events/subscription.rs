//! One reader: a place in the ring, a filter, and what it is told besides events.

use std::sync::{Arc, atomic::Ordering};

use axum::body::Bytes;
use tokio::{sync::watch, time::timeout};

use super::{
    Bus,
    ring::{Cursor, Wanted},
};
use crate::protocol::EventName;

/// A reader. What it takes is the same however far it is behind.
#[derive(Debug)]
pub(super) struct Subscription {
    bus: Arc<Bus>,
    wanted: Wanted,
    cursor: Cursor,
    news: watch::Receiver<()>,
    opening: Option<Bytes>,
    ended: bool,
}

impl Subscription {
    /// One that begins behind `since`, or with what comes next.
    pub(super) fn new(bus: &Arc<Bus>, wanted: Wanted, since: Option<&str>) -> Self {
        let news = bus.news();
        if wanted.has(EventName::ExecOutput) {
            bus.outputs().fetch_add(1, Ordering::Relaxed);
        }
        let (cursor, opening) = bus.place(since);
        Self { bus: Arc::clone(bus), wanted, cursor, news, opening: Some(opening), ended: false }
    }

    /// What goes out next; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        while !self.ended {
            self.news.mark_unchanged();
            // asked before the ring is: what came before the end is read
            self.ended = self.bus.is_closed();
            let batch = self.bus.read(&mut self.cursor, self.wanted);
            if !batch.bytes.is_empty() {
                // there may be more than fits at once
                self.ended = batch.rotated;
                return Some(batch.bytes);
            }
            self.ended |= batch.rotated;
            if self.ended {
                break;
            }
            match timeout(self.bus.settings().keep_alive, self.news.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => self.ended = true,
                Err(_) => return Some(self.bus.alive(&mut self.cursor)),
            }
        }
        None
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.wanted.has(EventName::ExecOutput) {
            self.bus.outputs().fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        guest::events::Settings,
        protocol::{EventId, LaggedEvent, LogEvent, SseDecoder},
    };

    const READERS: usize = 60;
    const EVENTS: u64 = 10_000;

    fn log(number: u64) -> LogEvent {
        let level = "warn".to_owned();
        LogEvent { ts: String::new(), level, target: String::new(), text: number.to_string(), omitted_bytes: None }
    }

    /// Reads to the end, from when `begin` says so, and shows how far it is. How many came, and how many are said to
    /// be lost.
    async fn read(
        mut subscription: Subscription,
        mut begin: watch::Receiver<bool>,
        reached: watch::Sender<u64>,
    ) -> (u64, u64) {
        begin.wait_for(|begin| *begin).await.unwrap();
        let mut decoder = SseDecoder::new(1 << 20);
        let (mut got, mut lost, mut newest) = (0, 0, 1);
        while let Some(bytes) = subscription.next().await {
            decoder.push(&bytes);
            while let Some(event) = decoder.next_event().unwrap() {
                let counter = event.id.parse::<EventId>().unwrap().counter;
                if event.name == "lagged" {
                    lost += serde_json::from_str::<LaggedEvent>(&event.data).unwrap().lost;
                } else {
                    assert_eq!(counter, newest + 1, "in order, and nothing missing that was not told");
                    got += 1;
                }
                newest = counter;
                reached.send_replace(newest);
            }
        }
        (got, lost)
    }

    /// S-03: each gets all in order, or is told exactly how many it lost; whoever emits waits for none of them.
    #[tokio::test]
    async fn slow_readers_are_told_what_they_lost_and_keen_ones_lose_nothing() {
        let bus = Bus::new("0123456789abcdef01", &Settings::DEFAULT);
        let tending = tokio::spawn(Arc::clone(&bus).tend());
        let (now, _) = watch::channel(true);
        let (later, _) = watch::channel(false);
        let start = |begin: &watch::Sender<bool>| {
            let (shows, place) = watch::channel(0);
            let subscription = Subscription::new(&bus, Wanted::those(|_| true), None);
            (tokio::spawn(read(subscription, begin.subscribe(), shows)), place)
        };
        let readers: Vec<_> = (0..READERS).map(|number| start(if number % 2 == 0 { &now } else { &later })).collect();
        let (keen, mut place) = start(&now);
        for number in 1..=EVENTS {
            bus.emit(EventName::Log, &log(number));
            if number % 2000 == 0 {
                // the first event of all was the agent's start
                place.wait_for(|reached| *reached == number + 1).await.unwrap();
            }
        }
        bus.close();
        later.send_replace(true);
        for (number, (reader, _)) in readers.into_iter().enumerate() {
            let (got, lost) = reader.await.unwrap();
            assert_eq!(got + lost, EVENTS);
            assert!(number % 2 == 0 || got == Settings::DEFAULT.most as u64, "one that had stopped gets the ring");
        }
        assert_eq!(keen.await.unwrap(), (EVENTS, 0));
        tending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_and_output_is_wanted_while_somebody_wants_it() {
        let bus = Bus::new("0123456789abcdef01", &Settings::DEFAULT);
        assert!(!bus.wants_output());
        let mut subscription = Subscription::new(&bus, Wanted::those(|_| true), None);
        assert!(bus.wants_output());
        assert_eq!(&subscription.next().await.unwrap()[..], b"id: 0123456789abcdef-1\n\n");
        let begun = tokio::time::Instant::now();
        assert_eq!(&subscription.next().await.unwrap()[..], b": alive\n\n");
        assert_eq!(begun.elapsed(), Settings::DEFAULT.keep_alive);
        drop(subscription);
        assert!(!bus.wants_output());
    }
}
