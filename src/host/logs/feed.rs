//! The way of one source's lines, to the merge.

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{LogEntry, LogOrigin};
use crate::host::Error;

/// What a source says of itself.
#[derive(Debug)]
pub(super) enum Report {
    /// It can be read.
    Reads,
    /// It cannot, and why; told once.
    Fails(LogOrigin, Error),
}

/// Nobody takes lines any more.
pub(super) struct Unheard;

/// The way of a source's lines.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) origin: LogOrigin,
    lines: mpsc::Sender<LogEntry>,
    reports: mpsc::Sender<Report>,
    since: Option<Timestamp>,
    /// The time of the last line that told one.
    pub(super) last: Option<Timestamp>,
    /// The last line that told one was too old.
    skipping: bool,
    failed: bool,
    /// Something came.
    pub(super) any: bool,
}

impl Feed {
    pub(super) const fn new(
        origin: LogOrigin,
        lines: mpsc::Sender<LogEntry>,
        reports: mpsc::Sender<Report>,
        since: Option<Timestamp>,
    ) -> Self {
        Self { origin, lines, reports, since, last: None, skipping: since.is_some(), failed: false, any: false }
    }

    /// Hands a line on.
    pub(super) async fn line(&mut self, time: Option<Timestamp>, text: String) -> Result<(), Unheard> {
        self.any = true;
        if let Some(time) = time {
            self.last = Some(time);
            self.skipping = self.since.is_some_and(|since| time < since);
        }
        if self.skipping {
            return Ok(());
        }
        self.lines.send(LogEntry { time: self.last, origin: self.origin, text }).await.map_err(|_| Unheard)
    }

    pub(super) async fn reads(&self) {
        // nobody listens where the whole reading is given up
        drop(self.reports.send(Report::Reads).await);
    }

    pub(super) async fn fails(&mut self, error: Error) {
        if !std::mem::replace(&mut self.failed, true) {
            drop(self.reports.send(Report::Fails(self.origin, error)).await);
        }
    }
}
