//! What of a pod's logs is wanted, with which patience, and a line of them.

use std::time::Duration;

use jiff::Timestamp;

use crate::host::{ClientSettings, engine::EngineSettings};

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
