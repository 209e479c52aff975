//! All logs of a pod in one time order: its container's, its agent's, its guest's installation's.
//!
//! Each source is read on its own and at the pace of whoever takes the lines; one that cannot be read is told of and
//! leaves the others going.

mod feed;
mod files;
mod merge;
mod request;
mod sources;

use tokio::sync::{mpsc, watch};

use super::{AgentKind, EngineKind, Error, ErrorKind, Pod, Result};
use feed::{Feed, Report};
use merge::Merge;
pub use request::{LogEntry, LogOrigin, LogsRequest, LogsSettings};
use sources::Source;

/// Lines of one source that may lie before the merge.
const AHEAD: usize = 256;

/// What comes of reading logs.
#[derive(Debug)]
pub enum LogsEvent {
    /// The next line.
    Line(LogEntry),
    /// This source cannot be read; told once.
    Unreadable(LogOrigin, Error),
}

/// Hands a pod's logs on, in the order of time.
///
/// # Errors
/// When none of the sources can be read: the first one's error, which is not among the events.
pub async fn pod_logs(
    pod: &Pod,
    request: &LogsRequest,
    settings: &LogsSettings,
    mut sink: impl FnMut(LogsEvent),
) -> Result<()> {
    let is_local = pod.settings().engine == EngineKind::Local;
    let (chosen, asked_for) = match &request.origins[..] {
        [] if is_local => (vec![LogOrigin::Agent], false),
        // the agent of winpodx hands out none
        [] if pod.settings().agent == AgentKind::Winpodx => (vec![LogOrigin::Container], false),
        [] => (LogOrigin::ALL.to_vec(), false),
        some => (LogOrigin::ALL.into_iter().filter(|origin| some.contains(origin)).collect(), true),
    };
    let ended = watch::Sender::new(false);
    let (reports, mut reported) = mpsc::channel(AHEAD);
    let (mut inputs, mut reading) = (Vec::new(), Vec::new());
    for origin in chosen {
        let (lines, input) = mpsc::channel(AHEAD);
        inputs.push(input);
        let feed = Feed::new(origin, lines, reports.clone(), request.since);
        reading.push(Source { pod, request, settings, feed, ended: &ended }.read());
    }
    drop(reports);
    let mut merged = Merge::new(inputs, request.follow.then_some(settings.look_ahead));
    let mut unread = Vec::new();
    let mut any = false;
    let mut all = std::pin::pin!(futures_util::future::join_all(reading));
    let mut running = true;
    loop {
        tokio::select! {
            biased;
            Some(report) = reported.recv() => match report {
                Report::Reads => any = true,
                // that an image has no log of its installation is no news to who did not ask
                Report::Fails(LogOrigin::Install, error) if !asked_for && error.kind() == ErrorKind::NotFound => {}
                Report::Fails(origin, error) => unread.push((origin, error)),
            },
            Some(entry) = merged.next() => sink(LogsEvent::Line(entry)),
            _ = &mut all, if running => running = false,
            else => break,
        }
        if any {
            unread.drain(..).for_each(|(origin, error)| sink(LogsEvent::Unreadable(origin, error)));
        }
    }
    // nothing at all could be read: the first of the sources says why
    unread.sort_by_key(|(origin, _)| *origin);
    unread.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}
