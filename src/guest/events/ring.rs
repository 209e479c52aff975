//! The last events, each as the bytes that go out, and what has been given up.

use std::collections::VecDeque;

use axum::body::Bytes;
use jiff::Timestamp;

use super::Settings;
use crate::protocol::{EventId, EventName, GapEvent, GapReason, LaggedEvent, sse_event, sse_position};

/// Most bytes that are handed out at once, but for an event that alone is longer: what a reader that has stopped may
/// hold up.
const BATCH: usize = 16 * 1024;

/// How many there are of each name.
pub(super) type Counts = [u64; EventName::ALL.len()];

/// Which events a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted(u32);

impl Wanted {
    /// Those for which `wants` is true.
    pub(super) fn those(wants: impl Fn(EventName) -> bool) -> Self {
        let bits = EventName::ALL.into_iter().filter(|name| wants(*name)).map(|name| 1 << name.number());
        Self(bits.fold(0, |all: u32, bit: u32| all | bit))
    }

    pub(super) const fn has(self, name: EventName) -> bool {
        self.0 & (1 << name.number()) != 0
    }

    /// Whether none is wanted.
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A reader's place.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The counter of the event that comes next.
    pub(super) next: u64,
    /// How many of each name lie behind: so what was given up meanwhile can be counted by name.
    passed: Counts,
    /// The last counter that the reader has been told.
    pub(super) told: u64,
    /// Where the ring stood when the reader came.
    born: u64,
}

/// What a reader gets.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    /// The token changed after the reader had come: it shall come again, with the new one.
    pub(super) rotated: bool,
}

#[derive(Debug)]
struct Entry {
    name: EventName,
    frame: Bytes,
}

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    epoch: String,
    most: usize,
    most_bytes: usize,
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The counter of the oldest entry, or of the one to come.
    first: u64,
    /// All that have been given up.
    dropped: Counts,
}

impl Ring {
    /// An empty one.
    pub(super) fn new(epoch: String, settings: &Settings) -> Self {
        Self {
            epoch,
            most: settings.most.max(1),
            most_bytes: settings.most_bytes,
            entries: VecDeque::new(),
            bytes: 0,
            first: 1,
            dropped: Counts::default(),
        }
    }

    /// The counter of the event to come.
    pub(super) fn head(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn id(&self, counter: u64) -> String {
        EventId { epoch: self.epoch.clone(), counter }.to_string()
    }

    /// Adds an event, and gives up the oldest that there is no room for any more.
    pub(super) fn push(&mut self, name: EventName, json: &str) {
        let frame: Bytes = sse_event(&self.id(self.head()), name.as_str(), json).into();
        self.bytes += frame.len();
        self.entries.push_back(Entry { name, frame });
        while self.entries.len() > self.most || (self.bytes > self.most_bytes && self.entries.len() > 1) {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.frame.len();
            self.first += 1;
            self.dropped[oldest.name.number()] += 1;
        }
    }

    /// A place for a reader that wants to go on behind `since`, or with what comes next; and what it is told first.
    pub(super) fn place(&self, since: Option<&str>) -> (Cursor, Bytes) {
        let (next, gap) = match since.map(|since| self.resume(since)) {
            None => (self.head(), None),
            Some(Ok(next)) => (next, None),
            Some(Err(reason)) => (self.first, Some(reason)),
        };
        let told = next - 1;
        let opening = match gap {
            None => sse_position(&self.id(told)),
            Some(reason) => {
                let gap = GapEvent { ts: now(), reason, first: self.id(self.first) };
                sse_event(&self.id(told), EventName::Gap.as_str(), &json(&gap))
            }
        };
        let mut passed = self.dropped;
        let behind = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        for entry in self.entries.iter().take(behind) {
            passed[entry.name.number()] += 1;
        }
        (Cursor { next, passed, told, born: self.head() }, opening.into())
    }

    /// The counter to go on with, or why that cannot be.
    fn resume(&self, since: &str) -> Result<u64, GapReason> {
        let id: EventId = since.parse().map_err(|_| GapReason::Malformed)?;
        if id.epoch != self.epoch {
            return Err(GapReason::Epoch);
        }
        if id.counter >= self.head() {
            return Err(GapReason::Future);
        }
        if id.counter + 1 < self.first { Err(GapReason::Expired) } else { Ok(id.counter + 1) }
    }

    /// What a reader gets next; no bytes where there is nothing for it.
    pub(super) fn read(&self, cursor: &mut Cursor, wanted: Wanted) -> Batch {
        let mut out = Vec::new();
        let mut rotated = false;
        if cursor.next < self.first {
            let lost = |name: EventName| self.dropped[name.number()] - cursor.passed[name.number()];
            let count: u64 = EventName::ALL.into_iter().filter(|name| wanted.has(*name)).map(lost).sum();
            rotated |= lost(EventName::TokenRotated) > 0;
            cursor.next = self.first;
            cursor.passed = self.dropped;
            if count > 0 {
                let lagged = LaggedEvent { ts: now(), lost: count };
                cursor.told = self.first - 1;
                out = sse_event(&self.id(cursor.told), EventName::Lagged.as_str(), &json(&lagged));
            }
        }
        let start = usize::try_from(cursor.next - self.first).unwrap_or(usize::MAX);
        for entry in self.entries.iter().skip(start) {
            if rotated {
                break;
            }
            let wants = wanted.has(entry.name);
            if wants && !out.is_empty() && out.len() + entry.frame.len() > BATCH {
                break;
            }
            rotated = entry.name == EventName::TokenRotated && cursor.next >= cursor.born;
            cursor.passed[entry.name.number()] += 1;
            cursor.next += 1;
            if wants {
                cursor.told = cursor.next - 1;
                if out.is_empty() && entry.frame.len() > BATCH {
                    return Batch { bytes: entry.frame.clone(), rotated };
                }
                out.extend_from_slice(&entry.frame);
            }
        }
        Batch { bytes: out.into(), rotated }
    }

    /// A sign of life; with the place where the reader stands by now, where that has moved with nothing for it.
    pub(super) fn alive(&self, cursor: &mut Cursor) -> Bytes {
        let alive = Bytes::from_static(crate::protocol::SSE_ALIVE);
        if cursor.told + 1 == cursor.next {
            return alive;
        }
        cursor.told = cursor.next - 1;
        [&alive[..], &sse_position(&self.id(cursor.told))].concat().into()
    }
}

/// RFC 3339, to the millisecond.
pub(super) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// These types hold nothing that JSON cannot.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::SseDecoder;

    fn ring(most: usize, most_bytes: usize) -> Ring {
        Ring::new("e".to_owned(), &Settings { most, most_bytes, ..Settings::DEFAULT })
    }

    fn told(bytes: &[u8]) -> Vec<(String, String, String)> {
        let mut decoder = SseDecoder::new(1 << 20);
        decoder.push(bytes);
        std::iter::from_fn(|| decoder.next_event().unwrap()).map(|event| (event.name, event.id, event.data)).collect()
    }

    /// All that lies there for a reader.
    fn read_all(ring: &Ring, cursor: &mut Cursor, wanted: Wanted) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        loop {
            let batch = ring.read(cursor, wanted);
            if batch.bytes.is_empty() {
                return all;
            }
            all.extend(told(&batch.bytes));
        }
    }

    #[test]
    fn who_comes_back_goes_on_or_is_told_why_not() {
        let mut ring = ring(4, 1 << 20);
        for number in 1..=6 {
            ring.push(EventName::Log, &format!("{number}"));
        }
        let all = Wanted::those(|_| true);
        for (since, gap, first) in [
            ("e-2", None, 3),
            ("e-5", None, 6),
            ("e-6", None, 7),
            ("e-1", Some("expired"), 3),
            ("e-0", Some("expired"), 3),
            ("e-7", Some("future"), 3),
            ("e-18446744073709551615", Some("future"), 3),
            ("f-5", Some("epoch"), 3),
            ("5", Some("malformed"), 3),
            ("\r\ndata: x", Some("malformed"), 3),
        ] {
            let (mut cursor, opening) = ring.place(Some(since));
            let opening = told(&opening);
            let reasons: Vec<_> = opening
                .iter()
                .map(|(name, id, data)| {
                    let gap: GapEvent = serde_json::from_str(data).unwrap();
                    assert_eq!((&**name, &**id, &*gap.first), ("gap", "e-2", "e-3"), "{since}");
                    serde_json::to_value(gap.reason).unwrap().as_str().unwrap().to_owned()
                })
                .collect();
            assert_eq!(reasons, Vec::from_iter(gap), "{since}");
            let ids: Vec<_> = read_all(&ring, &mut cursor, all).into_iter().map(|(_, id, _)| id).collect();
            assert_eq!(ids, (first..=6).map(|counter| format!("e-{counter}")).collect::<Vec<_>>(), "{since}");
        }
        let (mut cursor, opening) = ring.place(None);
        assert_eq!((&opening[..], read_all(&ring, &mut cursor, all).len()), (&b"id: e-6\n\n"[..], 0));
    }

    #[test]
    fn bytes_bound_the_ring_and_one_event_is_always_held() {
        let mut ring = ring(100, 1000);
        let (mut cursor, _) = ring.place(None);
        for _ in 0..50 {
            ring.push(EventName::ExecOutput, &"x".repeat(200));
            assert!(ring.bytes <= 1000);
        }
        ring.push(EventName::ExecOutput, &"x".repeat(5000));
        let events = read_all(&ring, &mut cursor, Wanted::those(|_| true));
        assert_eq!(events.len(), 2, "lagged, and the newest");
        let lagged: LaggedEvent = serde_json::from_str(&events[0].2).unwrap();
        assert_eq!((lagged.lost, &*events[1].1), (50, "e-51"));
    }

    #[test]
    fn a_quiet_reader_is_told_where_it_stands() {
        let mut ring = ring(100, 1 << 20);
        let (mut cursor, _) = ring.place(None);
        let wanted = Wanted::those(|name| name == EventName::Log);
        assert_eq!(&ring.alive(&mut cursor)[..], b": alive\n\n");
        ring.push(EventName::AuthFailed, "{}");
        assert!(ring.read(&mut cursor, wanted).bytes.is_empty());
        assert_eq!(&ring.alive(&mut cursor)[..], b": alive\n\nid: e-1\n\n");
        assert_eq!(&ring.alive(&mut cursor)[..], b": alive\n\n");
    }

    #[test]
    fn another_token_ends_streams_that_were_open_and_no_later_ones() {
        let mut ring = ring(100, 1 << 20);
        let (mut old, _) = ring.place(None);
        ring.push(EventName::TokenRotated, "{}");
        ring.push(EventName::Log, "{}");
        let all = Wanted::those(|_| true);
        let batch = ring.read(&mut old, all);
        assert!(batch.rotated);
        assert_eq!(told(&batch.bytes).len(), 1, "nothing behind it");
        let (mut new, _) = ring.place(Some("x"));
        let batch = ring.read(&mut new, all);
        assert!(!batch.rotated);
        assert_eq!(told(&batch.bytes).len(), 2);
    }

    proptest! {
        /// Each reader gets all that it wants in order, or exactly as many as it did not get are said to be lost.
        #[test]
        fn nothing_is_lost_in_silence(
            most in 1..20_usize,
            steps in proptest::collection::vec((0..3_usize, 0..30_usize), 0..60),
        ) {
            let mut ring = ring(most, 4000);
            let filters = [Wanted::those(|_| true), Wanted::those(|name| name == EventName::Log), Wanted::those(|_| false)];
            let mut readers: Vec<_> = filters.iter().map(|wanted| (*wanted, ring.place(None).0, 0_u64, 0_u64)).collect();
            let mut emitted = [0_u64; 3];
            for (reader, count) in steps {
                for number in 0..count {
                    let name = if number % 3 == 0 { EventName::Log } else { EventName::ExecOutput };
                    ring.push(name, &"x".repeat(number * 20));
                    for (number, wanted) in filters.iter().enumerate() {
                        emitted[number] += u64::from(wanted.has(name));
                    }
                }
                let (wanted, cursor, got, last) = &mut readers[reader];
                for (name, id, data) in read_all(&ring, cursor, *wanted) {
                    let counter = id.parse::<EventId>().unwrap().counter;
                    if name == "lagged" {
                        *got += serde_json::from_str::<LaggedEvent>(&data).unwrap().lost;
                    } else {
                        *got += 1;
                        prop_assert!(counter > *last);
                    }
                    *last = counter;
                }
                prop_assert_eq!(*got, emitted[reader]);
            }
        }
    }
}
