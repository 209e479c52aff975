//! A stream of output: all of it read, as much kept as was asked for, and honest about the rest.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    super::{counters::Counters, sys::OutputEnd},
    live::Observer,
    ring::Ring,
};
use crate::protocol::FrameKind;

/// What came on one stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The first bytes, at most as many as were to be kept.
    pub bytes: Vec<u8>,
    /// All bytes that came.
    pub total: u64,
}

impl Captured {
    /// Whether some are missing.
    pub(crate) fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    fn take(&mut self, bytes: &[u8], max: usize) {
        self.total += bytes.len() as u64;
        let room = max - self.bytes.len().min(max);
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Where bytes are missing behind the kept ones: drops a character that was cut in two.
    fn end_on_a_character(&mut self) {
        if !self.truncated() {
            return;
        }
        // a lead byte within the last three whose sequence goes on past the end
        for back in 1..=3.min(self.bytes.len()) {
            let at = self.bytes.len() - back;
            let needs = match self.bytes[at] {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                0x80..=0xbf => continue,
                _ => return,
            };
            if needs > back {
                self.bytes.truncate(at);
            }
            return;
        }
    }
}

/// How reading ended.
#[derive(Debug)]
pub(super) enum Rest {
    /// Every writer is gone.
    Ended,
    /// Somebody still holds the other end.
    Open(OutputEnd),
}

/// Where a stream's bytes go.
#[derive(Debug)]
pub(super) enum Sink {
    /// Here, the first so many of them.
    Keep(Captured, usize, FrameKind, Arc<dyn Observer>),
    /// Into the run's ring; how many have come.
    Ring(Arc<Ring>, u64, FrameKind, Arc<dyn Observer>),
}

impl Sink {
    async fn take(&mut self, bytes: &[u8]) {
        // before a reader is waited for: it is to keep up the program, not those who look on
        let (Self::Keep(_, _, kind, observer) | Self::Ring(_, _, kind, observer)) = &*self;
        observer.output(*kind, bytes);
        match self {
            Self::Keep(captured, max, ..) => captured.take(bytes, *max),
            Self::Ring(ring, total, kind, _) => {
                *total += bytes.len() as u64;
                ring.push(*kind, bytes).await;
            }
        }
    }

    /// What was kept.
    fn into_captured(self) -> Captured {
        match self {
            Self::Keep(mut captured, ..) => {
                captured.end_on_a_character();
                captured
            }
            Self::Ring(_, total, ..) => Captured { bytes: Vec::new(), total },
        }
    }
}

/// A stream's bytes on their way, counted as they come.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) sink: Sink,
    pub(super) counters: Arc<Counters>,
}

impl Counted {
    async fn take(&mut self, bytes: &[u8]) {
        self.counters.output_bytes.add(bytes.len() as u64);
        self.sink.take(bytes).await;
    }
}

/// Reads a pipe or a terminal to its end; or, once `leader_gone` says so and `grace` has passed, to what lies in it then.
pub(super) async fn drain_into(
    mut sink: Counted,
    mut pipe: OutputEnd,
    grace: Duration,
    mut leader_gone: watch::Receiver<bool>,
) -> (Captured, Rest) {
    let mut buffer = vec![0; 64 * 1024];
    let give_up = async {
        // an error means that the supervisor is gone: nobody waits for more
        drop(leader_gone.wait_for(|gone| *gone).await);
        tokio::time::sleep(grace).await;
    };
    tokio::pin!(give_up);
    let rest = loop {
        tokio::select! {
            biased;
            () = &mut give_up => break read_what_is_there(pipe, &mut sink, &mut buffer).await,
            read = pipe.read(&mut buffer) => match read {
                Ok(0) => break Rest::Ended,
                Ok(count) => sink.take(&buffer[..count]).await,
                Err(error) => {
                    tracing::warn!(%error, "could not read a program's output to its end");
                    break Rest::Ended;
                }
            },
        }
    };
    (sink.sink.into_captured(), rest)
}

/// Takes what was in it when this began, and no more: its writer may never stop.
async fn read_what_is_there(mut pipe: OutputEnd, sink: &mut Counted, buffer: &mut [u8]) -> Rest {
    let mut left = pipe.waiting();
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match pipe.read_waiting(&mut buffer[..most]).await {
            Ok(None) => break,
            Ok(Some(0)) | Err(_) => return Rest::Ended,
            Ok(Some(count)) => {
                sink.take(&buffer[..count]).await;
                left = left.saturating_sub(count as u64);
            }
        }
    }
    Rest::Open(pipe)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(text: &str, max: usize) -> Captured {
        let mut captured = Captured::default();
        for chunk in text.as_bytes().chunks(7) {
            captured.take(chunk, max);
        }
        captured.end_on_a_character();
        captured
    }

    proptest! {
        #[test]
        fn a_cap_never_splits_a_character(text in any::<String>(), max in 0_usize..40) {
            let captured = kept(&text, max);
            prop_assert!(std::str::from_utf8(&captured.bytes).is_ok());
            prop_assert!(text.as_bytes().starts_with(&captured.bytes));
            prop_assert!(captured.bytes.len() + 3 >= max.min(text.len()));
            prop_assert_eq!(captured.total, text.len() as u64);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_to_the_cap() {
        let mut captured = Captured::default();
        captured.take(&[0xff; 10], 4);
        captured.end_on_a_character();
        assert_eq!(captured.bytes, [0xff; 4]);
    }
}
