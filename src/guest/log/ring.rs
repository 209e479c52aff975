//! The newest lines of a log that goes to no file, in memory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// Bytes that are kept.
const MOST_BYTES: usize = 1024 * 1024;

/// Lines by their numbers, the oldest given up for new ones.
#[derive(Debug)]
pub(in crate::guest) struct Ring {
    kept: Mutex<Kept>,
    /// The number of the next line.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    /// The number of the oldest.
    first: u64,
}

impl Ring {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), next: watch::Sender::new(0) })
    }

    pub(super) fn push(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
        let mut kept = self.kept();
        kept.bytes += text.len();
        kept.lines.push_back(text.into());
        while kept.bytes > MOST_BYTES
            && let Some(oldest) = kept.lines.pop_front()
        {
            kept.bytes -= oldest.len();
            kept.first += 1;
        }
        let next = kept.first + kept.lines.len() as u64;
        drop(kept);
        // two lines at once may come here in either order
        self.next.send_if_modified(|known| next > std::mem::replace(known, next.max(*known)));
    }

    /// The number of the oldest line of the last `tail`, or of all.
    pub(in crate::guest) fn start(&self, tail: Option<u64>) -> u64 {
        let kept = self.kept();
        let count = kept.lines.len() as u64;
        kept.first + count - tail.map_or(count, |tail| tail.min(count))
    }

    /// The line of this number, or the oldest after it, with its own number; `None` where it is still to come.
    pub(in crate::guest) fn line(&self, number: u64) -> Option<(u64, Arc<str>)> {
        let kept = self.kept();
        let number = number.max(kept.first);
        let line = kept.lines.get(usize::try_from(number - kept.first).ok()?)?;
        Some((number, Arc::clone(line)))
    }

    /// Tells when there are lines from this number on.
    pub(in crate::guest) async fn comes(&self, number: u64) {
        let mut next = self.next.subscribe();
        drop(next.wait_for(|next| *next > number).await);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_lines_go_and_keep_their_numbers() {
        let ring = Ring::new();
        assert_eq!((ring.start(None), ring.line(0)), (0, None));
        let long = "x".repeat(MOST_BYTES / 4);
        for number in 0..6 {
            ring.push(format!("{number}{long}\n").as_bytes());
        }
        ring.comes(5).await;
        let (number, line) = ring.line(0).unwrap();
        assert!(number > 0 && line.starts_with(&number.to_string()) && line.ends_with('x'));
        assert_eq!((ring.start(None), ring.start(Some(1)), ring.start(Some(0))), (number, 5, 6));
        assert_eq!(ring.line(6), None);
        ring.push(b"");
        assert_eq!(&*ring.line(6).unwrap().1, "");
    }
}
