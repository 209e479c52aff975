//! What is told of a call's end: a line of the log, the audit line, an event, the counters.

use std::time::Duration;

use super::{
    super::{audit::CallLine, counters::Counters},
    answer::Finished,
    call::Call,
};

impl Call {
    /// A line of the log, under its request's id.
    pub(super) fn log_end(&self, finished: &Finished, took: Duration) {
        tracing::info!(
            request_id = self.facts.request_id,
            process_id = &*self.facts.process_id,
            outcome = finished.summary(),
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "call ended"
        );
    }

    /// Who asked for what, and what came of it, to all that keep account; before anybody has the answer.
    pub(super) fn tell_end(&self, finished: &Finished, script: Option<&str>, took: Duration, counters: &Counters) {
        let facts = &self.facts;
        let line = CallLine {
            request_id: &facts.request_id,
            peer: facts.peer,
            mode: facts.mode.as_str(),
            process_id: &facts.process_id,
            session: facts.session.as_deref(),
            script_sha256: facts.script_sha256.as_deref(),
            script,
            argv: facts.argv.as_deref(),
            result: finished.result(),
            took,
        };
        line.write();
        self.events.ended(finished.result());
        let (killed, survivors) = finished.toll();
        counters.killed.add(killed);
        counters.survivors.add(survivors.len() as u64);
        counters.ended(finished.end());
    }
}
