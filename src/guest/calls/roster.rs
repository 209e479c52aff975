//! Every call by the agent's own name for it: those that live, and the newest of those that have ended.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{call::Call, settings::Settings};

/// All calls.
#[derive(Debug, Default)]
pub(super) struct Roster {
    calls: HashMap<Arc<str>, (u64, Arc<Call>)>,
    /// Names of ended calls with the time of their end, oldest first.
    ended: VecDeque<(Instant, Arc<str>)>,
    next: u64,
}

impl Roster {
    /// Adds a call that is to live.
    pub(super) fn add(&mut self, call: &Arc<Call>) {
        self.next += 1;
        self.calls.insert(Arc::clone(&call.facts.process_id), (self.next, Arc::clone(call)));
    }

    /// The call has ended: of it only a record is kept, for a while.
    pub(super) fn end(&mut self, call: &Arc<Call>) {
        let Some((_, kept)) = self.calls.get_mut(&call.facts.process_id) else { return };
        *kept = call.record();
        self.ended.push_back((Instant::now(), Arc::clone(&call.facts.process_id)));
        while self.ended.len() > Settings::MOST_RECORDS {
            self.forget_oldest();
        }
        self.give_up_output();
    }

    /// Looks one up.
    pub(super) fn find(&mut self, process_id: &str) -> Option<Arc<Call>> {
        self.forget_old(Instant::now());
        self.calls.get(process_id).map(|(_, call)| Arc::clone(call))
    }

    /// Whether it has not been forgotten.
    pub(super) fn knows(&self, call: &Call) -> bool {
        self.calls.contains_key(&call.facts.process_id)
    }

    /// Everybody, in the order in which they came.
    pub(super) fn all(&mut self) -> Vec<Arc<Call>> {
        self.forget_old(Instant::now());
        let mut calls: Vec<_> = self.calls.values().collect();
        calls.sort_unstable_by_key(|(number, _)| *number);
        calls.into_iter().map(|(_, call)| Arc::clone(call)).collect()
    }

    /// Everybody who has not ended.
    pub(super) fn living(&self) -> Vec<Arc<Call>> {
        let living = self.calls.values().filter(|(_, call)| call.outcome().is_none());
        living.map(|(_, call)| Arc::clone(call)).collect()
    }

    /// Forgets an ended one.
    pub(super) fn forget(&mut self, process_id: &str) {
        if self.calls.get(process_id).is_some_and(|(_, call)| call.outcome().is_some()) {
            self.remove(process_id);
            self.ended.retain(|(_, id)| &**id != process_id);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(at, _)| now.duration_since(*at) > Settings::KEEP_RECORD) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.ended.pop_front() {
            self.remove(&id);
        }
    }

    /// Others may know the call by its request id for longer; its output is no longer kept for them.
    fn remove(&mut self, process_id: &str) {
        if let Some((_, call)) = self.calls.remove(process_id)
            && let Some(ring) = call.ring()
        {
            ring.give_up();
        }
    }

    /// Ended calls hold so much output in all, and no more: the oldest give theirs up.
    fn give_up_output(&mut self) {
        let mut held = 0;
        for (_, id) in self.ended.iter().rev() {
            let Some(ring) = self.calls.get(id).and_then(|(_, call)| call.ring()) else { continue };
            held += ring.cost();
            if held > Settings::KEEP_BYTES as u64 {
                ring.give_up();
            }
        }
    }
}
