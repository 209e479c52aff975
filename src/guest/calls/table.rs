//! Which calls are known by the id that their caller gave: the living ones, and the ended ones for ten minutes.
//!
//! Implementation note: at most once means that an id is never run again while a caller may still repeat it. So an
//! ended call's id stays when its result has to go (64 MiB in all), and a repeat of it is refused rather than run.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use sha2::{Digest as _, Sha256};

use super::{call::Call, settings::Settings};

/// Ids of ended calls that are remembered; the oldest go first. At 100 bytes each, some 25 MB.
const MOST_IDS: usize = 262_144;

/// What tells one request from another: its body, and the form of answer that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct Digest([u8; 32]);

impl Digest {
    /// The digest of a body that is to be answered in this form.
    pub(in crate::guest) fn of(form: &str, body: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(form).chain_update([0]).chain_update(body).finalize().into())
    }
}

/// What is known of a request id.
pub(super) enum Known {
    /// Nothing: it may be run.
    Nothing,
    /// It stands for another request.
    Another,
    /// It runs, waits to, or has ended and its answer is kept.
    Call(Arc<Call>),
    /// It has ended, and its answer had to go.
    Forgotten,
}

#[derive(Debug)]
struct Entry {
    digest: Digest,
    /// `None` once its answer had to go.
    call: Option<Arc<Call>>,
    /// Bytes that keeping it takes, once it has ended.
    len: usize,
}

/// All ids.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_id: HashMap<Arc<str>, Entry>,
    /// Ids whose answer is kept, oldest first.
    kept: VecDeque<Arc<str>>,
    kept_bytes: usize,
    /// Ids of all ended calls with the time of their end, oldest first.
    ended: VecDeque<(Instant, Arc<str>)>,
}

impl Table {
    /// Looks an id up.
    pub(super) fn find(&mut self, id: &str, digest: Digest) -> Known {
        self.forget_old(Instant::now());
        match self.by_id.get(id) {
            None => Known::Nothing,
            Some(entry) if entry.digest != digest => Known::Another,
            Some(entry) => entry.call.as_ref().map_or(Known::Forgotten, |call| Known::Call(Arc::clone(call))),
        }
    }

    /// Looks an id up without a body.
    pub(super) fn named(&mut self, id: &str) -> Known {
        match self.by_id.get(id).map(|entry| entry.digest) {
            Some(digest) => self.find(id, digest),
            None => Known::Nothing,
        }
    }

    /// Adds a call that is to live.
    pub(super) fn begin(&mut self, call: &Arc<Call>, id: &str, digest: Digest) {
        self.by_id.insert(id.into(), Entry { digest, call: Some(Arc::clone(call)), len: 0 });
    }

    /// Keeps an ended call under its id; one that ran nothing (`len` is `None`) may be tried again.
    pub(super) fn end(&mut self, id: &str, len: Option<usize>) {
        let Some((id, mut entry)) = self.by_id.remove_entry(id) else { return };
        let Some(len) = len else { return };
        if len <= Settings::KEEP_BYTES {
            entry.len = len;
            self.kept_bytes += len;
            self.kept.push_back(Arc::clone(&id));
        } else {
            entry.call = None;
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
            && entry.call.take().is_some()
        {
            self.kept_bytes -= entry.len;
        }
    }
}
