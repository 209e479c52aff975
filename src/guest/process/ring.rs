//! The output of one run, in the order in which it was read: its last bytes, and where each stands in the whole.
//!
//! Offsets count the bytes of stdout and stderr together, from the run's start. Whoever has received the bytes up to
//! an offset can come back with it, over any connection, and goes on exactly there; what the ring no longer holds is
//! told as a gap.
//!
//! Implementation note: the ring keeps more than the window by which the program may be ahead of its reader. What
//! lies behind the reader is what a connection that breaks may have swallowed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::body::Bytes;
use tokio::sync::Notify;

use crate::protocol::{FrameKind, Gap};

/// Most bytes that are handed out at once.
const CHUNK: usize = 64 * 1024;

/// Most changes between stdout and stderr that are kept: each takes 16 bytes, however short the pieces are.
const MOST_SEGMENTS: usize = 65_536;

/// How much is kept, and how far ahead of its reader a program may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingSize {
    /// Bytes that are kept.
    pub capacity: usize,
    /// Bytes that nobody has taken yet, beyond which the writer waits.
    pub window: usize,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    size: RingSize,
    state: Mutex<State>,
    /// Something came, or the end did.
    filled: Notify,
    /// A reader has taken something, or nobody need be waited for any more.
    taken: Notify,
}

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    /// Which stream the bytes up to each end belong to, oldest first.
    segments: VecDeque<Segment>,
    /// The offset behind the newest byte.
    head: u64,
    /// The furthest offset up to which any reader has taken.
    taken: u64,
    /// Whether the writer waits for readers.
    waits: bool,
    closed: bool,
    /// Readers that are there.
    readers: usize,
    /// The bytes go with the last reader.
    given_up: bool,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: FrameKind,
    end: u64,
}

impl State {
    fn tail(&self) -> u64 {
        self.head - self.bytes.len() as u64
    }

    fn append(&mut self, kind: FrameKind, bytes: &[u8], capacity: usize) {
        let over = (self.bytes.len() + bytes.len()).saturating_sub(capacity);
        self.drop_oldest(over.min(self.bytes.len()));
        let kept = &bytes[bytes.len().saturating_sub(capacity)..];
        let needed = self.bytes.len() + kept.len();
        if needed > self.bytes.capacity() {
            // left to itself it doubles, to up to twice what it may hold
            let roomy = (self.bytes.capacity() * 2).min(capacity).max(needed);
            self.bytes.reserve_exact(roomy - self.bytes.len());
        }
        self.bytes.extend(kept);
        self.head += bytes.len() as u64;
        match self.segments.back_mut() {
            Some(last) if last.kind == kind => last.end = self.head,
            _ => self.segments.push_back(Segment { kind, end: self.head }),
        }
        while self.segments.len() > MOST_SEGMENTS
            && let Some(oldest) = self.segments.front()
        {
            let len = usize::try_from(oldest.end.saturating_sub(self.tail())).unwrap_or(usize::MAX);
            self.drop_oldest(len.min(self.bytes.len()));
        }
    }

    /// Where the bytes are given up and nobody reads them any more, they go.
    fn let_go(&mut self) {
        if self.given_up && self.readers == 0 {
            self.bytes = VecDeque::new();
            self.segments = VecDeque::new();
        }
    }

    fn drop_oldest(&mut self, count: usize) {
        self.bytes.drain(..count);
        let tail = self.tail();
        while self.segments.front().is_some_and(|segment| segment.end <= tail) {
            self.segments.pop_front();
        }
    }

    /// Bytes of one stream from `offset` on, which the ring must hold.
    fn copy(&self, offset: u64) -> Option<(FrameKind, Vec<u8>)> {
        let at = self.segments.partition_point(|segment| segment.end <= offset);
        let segment = self.segments.get(at)?;
        let start = usize::try_from(offset - self.tail()).ok()?;
        let len = usize::try_from(segment.end - offset).unwrap_or(CHUNK).min(CHUNK);
        let (front, back) = self.bytes.as_slices();
        let mut copied = Vec::with_capacity(len);
        if let Some(front) = front.get(start..) {
            copied.extend_from_slice(&front[..front.len().min(len)]);
        }
        let start = (start + copied.len()).saturating_sub(front.len());
        let left = len - copied.len();
        copied.extend_from_slice(back.get(start..start + left)?);
        Some((segment.kind, copied))
    }
}

impl Ring {
    /// An empty one; with `waits` its writer waits for a reader.
    pub(crate) fn new(size: RingSize, waits: bool) -> Arc<Self> {
        let state = State {
            bytes: VecDeque::new(),
            segments: VecDeque::new(),
            head: 0,
            taken: 0,
            waits,
            closed: false,
            readers: 0,
            given_up: false,
        };
        Arc::new(Self { size, state: Mutex::new(state), filled: Notify::new(), taken: Notify::new() })
    }

    /// Adds bytes; waits while nobody has taken what lies there, where it is of the kind that waits.
    pub(crate) async fn push(&self, kind: FrameKind, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.taken.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            let count = self.push_some(kind, bytes);
            bytes = &bytes[count..];
            if count == 0 {
                room.await;
            }
        }
    }

    fn push_some(&self, kind: FrameKind, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let most = if state.waits {
            let ahead = usize::try_from(state.head - state.taken).unwrap_or(usize::MAX);
            self.size.window.saturating_sub(ahead)
        } else {
            bytes.len()
        };
        let count = bytes.len().min(most);
        if count > 0 {
            state.append(kind, &bytes[..count], self.size.capacity);
            drop(state);
            self.filled.notify_waiters();
        }
        count
    }

    /// From now on the writer waits for nobody: the oldest bytes go.
    pub(crate) fn stop_waiting(&self) {
        self.state().waits = false;
        self.taken.notify_waiters();
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.filled.notify_waiters();
    }

    /// Gives up the bytes that are held, once those who are reading them are done.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.given_up = true;
        state.let_go();
    }

    /// Bytes that came in all.
    pub(crate) fn head(&self) -> u64 {
        self.state().head
    }

    /// The offset of the oldest byte that is held.
    pub(crate) fn tail(&self) -> u64 {
        self.state().tail()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Bytes of one stream.
    Output {
        /// Which.
        kind: FrameKind,
        /// The bytes, at least one.
        bytes: Bytes,
    },
    /// Bytes that are gone.
    Gap(Gap),
    /// Nothing more will come.
    End,
}

/// Reads a ring from an offset on.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: Arc<Ring>,
    offset: u64,
}

impl Reader {
    /// A reader from `from`, or from the oldest byte that is held; `None` where that is beyond what has come.
    pub(crate) fn new(ring: &Arc<Ring>, from: Option<u64>) -> Option<Self> {
        let mut state = ring.state();
        let offset = from.unwrap_or_else(|| state.tail());
        if offset > state.head {
            return None;
        }
        state.readers += 1;
        drop(state);
        Some(Self { ring: Arc::clone(ring), offset })
    }

    /// The offset behind what was handed out last.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// What comes next. Dropped before it is ready, nothing is lost.
    pub(crate) async fn next(&mut self) -> Chunk {
        let ring = Arc::clone(&self.ring);
        loop {
            let filled = ring.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            if let Some(chunk) = self.take() {
                return chunk;
            }
            filled.await;
        }
    }

    /// What is there now; `None` where more may come.
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        let mut state = self.ring.state();
        let tail = state.tail();
        if self.offset < tail {
            let gap = Gap { from: self.offset, to: tail };
            self.offset = tail;
            return Some(Chunk::Gap(gap));
        }
        let Some((kind, bytes)) = state.copy(self.offset) else { return state.closed.then_some(Chunk::End) };
        self.offset += bytes.len() as u64;
        if state.taken < self.offset {
            state.taken = self.offset;
            drop(state);
            self.ring.taken.notify_waiters();
        }
        Some(Chunk::Output { kind, bytes: bytes.into() })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.ring.state();
        state.readers -= 1;
        state.let_go();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: RingSize = RingSize { capacity: 100, window: 40 };

    fn all(reader: &mut Reader) -> Vec<Chunk> {
        std::iter::from_fn(|| reader.take().filter(|chunk| *chunk != Chunk::End)).collect()
    }

    proptest! {
        #[test]
        fn what_is_held_comes_back_from_any_offset(
            pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..150)), 0..30),
            from in 0_u64..2000,
        ) {
            let ring = Ring::new(SMALL, false);
            let mut whole = Vec::new();
            for (is_out, bytes) in &pieces {
                let kind = if *is_out { FrameKind::Stdout } else { FrameKind::Stderr };
                prop_assert_eq!(ring.push_some(kind, bytes), bytes.len());
                whole.extend(bytes.iter().map(|byte| (kind, *byte)));
            }
            let head = whole.len() as u64;
            prop_assert_eq!((ring.head(), ring.tail()), (head, head.saturating_sub(100)));
            let Some(mut reader) = Reader::new(&ring, Some(from)) else {
                prop_assert!(from > head);
                return Ok(());
            };
            let mut at = from;
            for chunk in all(&mut reader) {
                match chunk {
                    Chunk::Gap(gap) => {
                        prop_assert_eq!(gap, Gap { from, to: ring.tail() });
                        at = gap.to;
                    }
                    Chunk::Output { kind, bytes } => {
                        for byte in bytes {
                            prop_assert_eq!(whole[usize::try_from(at).unwrap()], (kind, byte));
                            at += 1;
                        }
                    }
                    Chunk::End => unreachable!(),
                }
            }
            prop_assert_eq!((at, reader.offset()), (head, head));
        }
    }

    #[tokio::test]
    async fn a_writer_waits_for_its_reader_and_no_byte_is_lost() {
        let ring = Ring::new(SMALL, true);
        let mut reader = Reader::new(&ring, None).unwrap();
        let written: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let writer = tokio::spawn({
            let (ring, written) = (Arc::clone(&ring), written.clone());
            async move {
                ring.push(FrameKind::Stdout, &written).await;
                ring.close();
            }
        });
        tokio::task::yield_now().await;
        assert!(ring.head() <= 40, "no further than the window");
        let mut got = Vec::new();
        loop {
            match reader.next().await {
                Chunk::Output { bytes, .. } => got.extend_from_slice(&bytes),
                Chunk::Gap(gap) => panic!("{gap:?}"),
                Chunk::End => break,
            }
        }
        writer.await.unwrap();
        assert_eq!(got, written);
        // what the last connection may have swallowed is still there
        assert_eq!(Reader::new(&ring, Some(9_950)).unwrap().offset(), 9_950);
    }

    #[tokio::test]
    async fn a_writer_without_a_reader_goes_on_once_nobody_is_waited_for() {
        let ring = Ring::new(SMALL, true);
        let writer = tokio::spawn({
            let ring = Arc::clone(&ring);
            async move { ring.push(FrameKind::Stderr, &[7; 1000]).await }
        });
        tokio::task::yield_now().await;
        assert!(!writer.is_finished());
        ring.stop_waiting();
        writer.await.unwrap();
        assert_eq!((ring.head(), ring.tail()), (1000, 900));
        // those who are reading it read it to its end
        let mut early = Reader::new(&ring, Some(950)).unwrap();
        ring.give_up();
        assert_eq!(early.take(), Some(Chunk::Output { kind: FrameKind::Stderr, bytes: vec![7; 50].into() }));
        drop(early);
        let mut reader = Reader::new(&ring, Some(0)).unwrap();
        assert_eq!(reader.take(), Some(Chunk::Gap(Gap { from: 0, to: 1000 })));
        assert_eq!(reader.take(), None);
        ring.close();
        assert_eq!(reader.take(), Some(Chunk::End));
    }

    #[test]
    fn the_number_of_pieces_is_bounded_too() {
        let ring = Ring::new(RingSize { capacity: 1 << 20, window: 1 }, false);
        for n in 0..200_000 {
            let kind = if n % 2 == 0 { FrameKind::Stdout } else { FrameKind::Stderr };
            ring.push_some(kind, b"x");
        }
        assert_eq!(ring.tail(), ring.head() - MOST_SEGMENTS as u64);
    }
}
