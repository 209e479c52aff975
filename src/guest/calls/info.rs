//! A call as `GET /processes` shows it.

use jiff::Timestamp;

use super::{answer::Brief, call::Call};
use crate::protocol::{ProcessInfo, ProcessState};

impl Call {
    /// All that is known of it at this moment.
    pub(super) fn info(&self) -> ProcessInfo {
        let (start, outcome) = (self.live.start_of(), self.outcome());
        let state = match (&outcome, start) {
            (Some(_), _) => ProcessState::Exited,
            (None, Some(_)) => ProcessState::Running,
            (None, None) => ProcessState::Queued,
        };
        let (result, error) = match outcome.as_ref().map(|outcome| &outcome.brief) {
            Some(Brief::Result(result)) => (Some(Box::new((**result).clone())), None),
            Some(Brief::Error(error)) => (None, Some(Box::new((**error).clone()))),
            None => (None, None),
        };
        let (output_bytes, output_from) = match (self.ring(), &result) {
            (Some(ring), _) => (ring.head(), ring.tail()),
            (None, Some(result)) => {
                let bytes = result.stdout_bytes + result.stderr_bytes;
                (bytes, bytes)
            }
            (None, None) => (0, 0),
        };
        let facts = &self.facts;
        ProcessInfo {
            process_id: facts.process_id.to_string(),
            state,
            mode: self.mode(),
            pid: start.map(|start| start.pid),
            argv: facts.argv.clone(),
            script_sha256: facts.script_sha256.clone(),
            session: facts.session.clone(),
            pty: facts.pty,
            stdin_open: state == ProcessState::Running && self.live.input().is_some(),
            request_id: facts.request_id.clone(),
            created_at: text(facts.created_at),
            started_at: start.map(|start| text(start.at)),
            ended_at: outcome.map(|outcome| text(outcome.at)),
            output_bytes,
            output_from,
            result,
            error,
        }
    }
}

/// RFC 3339, to the millisecond.
fn text(at: Timestamp) -> String {
    format!("{at:.3}")
}
