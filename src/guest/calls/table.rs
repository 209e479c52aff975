//! Which calls are known: the living ones, and for ten minutes those whose caller gave an id.
//!
//! Implementation note: at most once means that an id is never run again while a caller may still repeat it. So an
//! ended call's id stays when its result has to go (64 MiB in all), and a repeat of it is refused rather than run.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use sha2::{Digest as _, Sha256};

use super::{answer::Finished, call::Call, settings::Settings};

/// Ids of ended calls that are remembered; the oldest go first. At 100 bytes each, some 25 MB.
const MOST_IDS: usize = 262_144;

/// What tells one request's body from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct Digest([u8; 32]);

impl Digest {
    /// The digest of a body.
    pub(in crate::guest) fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

/// What is known of a request id.
pub(super) enum Known {
    /// Nothing: it may be run.
    Nothing,
    /// It stands for another body.
    Another,
    /// It runs, or waits to.
    Living(Arc<Call>),
    /// It has ended so.
    Ended(Finished),
    /// It has ended, and its answer had to go.
    Forgotten,
}

#[derive(Debug)]
struct Entry {
    digest: Digest,
    state: State,
}

#[derive(Debug)]
enum State {
    Living(Arc<Call>),
    Ended(Finished),
    Forgotten,
}

/// All calls.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_id: HashMap<Arc<str>, Entry>,
    /// Ids whose answer is kept, oldest first.
    kept: VecDeque<Arc<str>>,
    kept_bytes: usize,
    /// Ids of all ended calls with the time of their end, oldest first.
    ended: VecDeque<(Instant, Arc<str>)>,
    living: HashMap<u64, Arc<Call>>,
    next: u64,
}

impl Table {
    /// Looks an id up.
    pub(super) fn find(&mut self, id: &str, digest: Digest) -> Known {
        self.forget_old(Instant::now());
        match self.by_id.get(id) {
            None => Known::Nothing,
            Some(entry) if entry.digest != digest => Known::Another,
            Some(entry) => match &entry.state {
                State::Living(call) => Known::Living(Arc::clone(call)),
                State::Ended(finished) => Known::Ended(finished.clone()),
                State::Forgotten => Known::Forgotten,
            },
        }
    }

    /// Looks an id up without a body.
    pub(super) fn named(&mut self, id: &str) -> Known {
        match self.by_id.get(id).map(|entry| entry.digest) {
            Some(digest) => self.find(id, digest),
            None => Known::Nothing,
        }
    }

    /// Adds a call that is to live; the number is its key until it ends.
    pub(super) fn begin(&mut self, call: &Arc<Call>, id: Option<(&str, Digest)>) -> u64 {
        self.next += 1;
        self.living.insert(self.next, Arc::clone(call));
        if let Some((id, digest)) = id {
            self.by_id.insert(id.into(), Entry { digest, state: State::Living(Arc::clone(call)) });
        }
        self.next
    }

    /// Takes a call off the living, and keeps its answer under its id; one that ran nothing may be tried again.
    pub(super) fn end(&mut self, number: u64, id: Option<&str>, finished: &Finished) {
        self.living.remove(&number);
        let Some(id) = id else { return };
        let Some((id, mut entry)) = self.by_id.remove_entry(id) else { return };
        if !finished.ran {
            return;
        }
        if finished.len() <= Settings::KEEP_BYTES {
            self.kept_bytes += finished.len();
            self.kept.push_back(Arc::clone(&id));
            entry.state = State::Ended(finished.clone());
        } else {
            entry.state = State::Forgotten;
        }
        self.ended.push_back((Instant::now(), Arc::clone(&id)));
        self.by_id.insert(id, entry);
        while self.kept_bytes > Settings::KEEP_BYTES
            && let Some(oldest) = self.kept.pop_front()
        {
            self.drop_answer(&oldest);
        }
        while self.ended.len() > MOST_IDS {
            self.forget_oldest();
        }
    }

    /// Everybody who lives.
    pub(super) fn living(&self) -> Vec<Arc<Call>> {
        self.living.values().cloned().collect()
    }

    fn forget_old(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(at, _)| now.duration_since(*at) > Settings::KEEP) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, id)) = self.ended.pop_front() else { return };
        self.drop_answer(&id);
        // ids end, are kept and go in one order, so it can only be the first
        if self.kept.front() == Some(&id) {
            self.kept.pop_front();
        }
        self.by_id.remove(&id);
    }

    fn drop_answer(&mut self, id: &str) {
        if let Some(entry) = self.by_id.get_mut(id)
            && let State::Ended(finished) = &entry.state
        {
            self.kept_bytes -= finished.len();
            entry.state = State::Forgotten;
        }
    }
}
