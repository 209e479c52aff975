//! What the agent counts of itself. Counting is an addition to an atomic number: it costs nothing and never fails.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Semaphore;

use crate::protocol::{AgentMetrics, CallCounts, RequestCounts};

/// A number that only goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    /// So many more.
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// With exit code 0.
    Succeeded,
    /// With another one.
    Failed,
    /// By its time-out.
    TimedOut,
    /// By its caller, or for want of one.
    Cancelled,
    /// Because the agent stops.
    Stopped,
    /// It could not be started.
    SpawnFailed,
    /// It got no place or no turn.
    Refused,
    /// By a fault in the agent.
    Faulty,
}

/// All of them; shared by whoever has something to count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// By the status' first digit.
    answers: [Counter; 5],
    /// Requests that lost their caller before the answer.
    pub(crate) requests_lost: Counter,
    /// Requests without the right token.
    pub(crate) auth_failures: Counter,
    /// Connections that were accepted.
    pub(crate) connections: Counter,
    /// Calls that began to run.
    pub(crate) calls_started: Counter,
    ends: [Counter; 8],
    /// Bytes that programs wrote to stdout and stderr.
    pub(crate) output_bytes: Counter,
    /// Processes that were ended.
    pub(crate) killed: Counter,
    /// Processes that would not end.
    pub(crate) survivors: Counter,
    running: AtomicU64,
    places: OnceLock<(Arc<Semaphore>, usize)>,
}

impl Counters {
    /// An answer went out, or its head.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(counter) = usize::from(status / 100).checked_sub(1).and_then(|class| self.answers.get(class)) {
            counter.add_one();
        }
    }

    /// A call runs, for as long as the value lives.
    pub(crate) fn running(self: &Arc<Self>) -> Running {
        self.calls_started.add_one();
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// A call has ended, run or not.
    pub(crate) fn ended(&self, how: CallEnd) {
        self.ends[how as usize].add_one();
    }

    /// Of `count` places for connections that are served, those that are not free are taken.
    pub(crate) fn watch_places(&self, free: &Arc<Semaphore>, count: usize) {
        // only the first ones count: an agent has one set of them
        drop(self.places.set((Arc::clone(free), count)));
    }

    /// Adds what was counted to what the system knows of the agent; of the `living` calls those wait that do not run.
    pub(crate) fn fill(&self, metrics: &mut AgentMetrics, living: u64) {
        let [informational, success, redirect, client_error, server_error] = self.answers.each_ref().map(Counter::get);
        let lost = self.requests_lost.get();
        metrics.requests = RequestCounts { informational, success, redirect, client_error, server_error, lost };
        let end = |how: CallEnd| self.ends[how as usize].get();
        metrics.calls = CallCounts {
            started: self.calls_started.get(),
            succeeded: end(CallEnd::Succeeded),
            failed: end(CallEnd::Failed),
            timed_out: end(CallEnd::TimedOut),
            cancelled: end(CallEnd::Cancelled),
            stopped: end(CallEnd::Stopped),
            spawn_failed: end(CallEnd::SpawnFailed),
            refused: end(CallEnd::Refused),
            faulty: end(CallEnd::Faulty),
        };
        metrics.calls_running = self.running.load(Ordering::Relaxed);
        metrics.calls_queued = living.saturating_sub(metrics.calls_running);
        metrics.output_bytes = self.output_bytes.get();
        metrics.killed = self.killed.get();
        metrics.survivors = self.survivors.get();
        metrics.connections = self.connections.get();
        metrics.connections_open =
            self.places.get().map_or(0, |(free, count)| count.saturating_sub(free.available_permits()) as u64);
        metrics.auth_failures = self.auth_failures.get();
    }
}

/// A call's running.
#[derive(Debug)]
pub(crate) struct Running(Arc<Counters>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let counters = Arc::new(Counters::default());
        for status in [101, 200, 204, 301, 404, 401, 429, 503, 0, 99, 600, 999] {
            counters.answered(status);
        }
        let places = Arc::new(Semaphore::new(4));
        counters.watch_places(&places, 5);
        let (one, two) = (counters.running(), counters.running());
        counters.ended(CallEnd::Faulty);
        counters.ended(CallEnd::Succeeded);
        counters.output_bytes.add(7);
        drop(one);
        let mut told = AgentMetrics::default();
        counters.fill(&mut told, 3);
        let wanted =
            RequestCounts { informational: 1, success: 2, redirect: 1, client_error: 3, server_error: 1, lost: 0 };
        assert_eq!(told.requests, wanted);
        assert_eq!(told.calls, CallCounts { started: 2, succeeded: 1, faulty: 1, ..CallCounts::default() });
        assert_eq!((told.calls_running, told.calls_queued, told.connections_open, told.output_bytes), (1, 2, 1, 7));
        drop(two);
        counters.fill(&mut told, 0);
        assert_eq!((told.calls_running, told.calls_queued), (0, 0));
    }
}
