//! All logs of a pod in one time order: its container's, its agent's, its guest's installation's.
//!
//! Each source is read on its own and at the pace of whoever takes the lines; one that cannot be read is told of and
//! leaves the others going.

mod files;
mod merge;
mod sources;

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::{AgentKind, ClientSettings, EngineKind, Error, ErrorKind, Pod, Result, engine::EngineSettings};
use merge::Merge;
use sources::{Feed, Report, Source};

/// Lines of one source that may lie before the merge.
const AHEAD: usize = 256;

/// Where a line was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogOrigin {
    /// By the container: the VM's own output.
    Container,
    /// By the agent in the guest.
    Agent,
    /// By the guest's installation.
    Install,
}

impl LogOrigin {
    /// All of them, in the order in which lines of one instant are shown.
    pub const ALL: [Self; 3] = [Self::Container, Self::Agent, Self::Install];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Agent => "agent",
            Self::Install => "install",
        }
    }
}

/// What of a pod's logs is wanted.
#[derive(Debug, Clone, Default)]
pub struct LogsRequest {
    /// Which; where none is named, all that the pod has.
    pub origins: Vec<LogOrigin>,
    /// Go on until the pod ends, with what is said from now on.
    pub follow: bool,
    /// No more than this many of the last lines of each.
    pub tail: Option<u32>,
    /// Nothing that is older.
    pub since: Option<Timestamp>,
}

/// Deadlines of reading logs.
#[derive(Debug, Clone)]
pub struct LogsSettings {
    /// How long a line waits for an older one of another source, while logs are followed.
    pub look_ahead: Duration,
    /// Between two tries to reach an agent that does not answer, while logs are followed.
    pub retry: Duration,
    /// Between two looks at a file that grows.
    pub poll: Duration,
    /// Of the engine.
    pub engine: EngineSettings,
    /// Of the agent.
    pub client: ClientSettings,
}

impl LogsSettings {
    /// As the commands use them.
    pub const DEFAULT: Self = Self {
        look_ahead: Duration::from_millis(300),
        retry: Duration::from_secs(2),
        poll: Duration::from_millis(200),
        engine: EngineSettings::DEFAULT,
        // a guest that does not run is met often, and its container's log is what one wants then
        client: ClientSettings {
            proof_deadline: Duration::from_secs(2),
            call_deadline: Duration::from_secs(5),
            ..ClientSettings::DEFAULT
        },
    };
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was said; where it does not tell, when the line before it of the same source was.
    pub time: Option<Timestamp>,
    /// Where.
    pub origin: LogOrigin,
    /// The line, without its end.
    pub text: String,
}

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
