//! What `GET /events` tells: the names, the ids, and the data of each event.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the agent does, as it does it.
pub const PATH_EVENTS: &str = "/events";
/// Request header of a reader that comes back: the id of the last event that it has got.
pub const HEADER_LAST_EVENT_ID: &str = "last-event-id";
/// Most bytes of one event's data; what is longer is cut, and says so.
pub const MAX_EVENT: usize = 128 * 1024;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventName {
    /// The first of each agent.
    AgentStarted,
    /// Calls are served from now on; told again where they were not for a while.
    AgentReady,
    /// No new call is taken; events of the calls that end now are still to come.
    AgentStopping,
    /// A step of the guest's installation.
    InstallStep,
    /// A program was started.
    ExecStarted,
    /// A program wrote something; sent only where it was asked for.
    ExecOutput,
    /// A program that was started has ended; nothing about it comes later.
    ExecExited,
    /// A step of the desired state was begun.
    ApplyStarted,
    /// It goes on.
    ApplyProgress,
    /// It was done.
    ApplyDone,
    /// It failed.
    ApplyFailed,
    /// The search for applications goes on.
    DiscoverProgress,
    /// It was done.
    DiscoverDone,
    /// A file came from the host.
    FilePushed,
    /// A file went to the host.
    FilePulled,
    /// A request bore no token, or another one.
    AuthFailed,
    /// The agent has taken another token. A stream that was open then ends after it: its reader comes back with the
    /// new one.
    TokenRotated,
    /// A warning or an error of the agent's log.
    Log,
    /// To one reader: what it wanted to resume from is not held; whatever filter it has.
    Gap,
    /// To one reader: it was too slow, and has lost some; whatever filter it has.
    Lagged,
}

impl EventName {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::AgentStarted,
        Self::AgentReady,
        Self::AgentStopping,
        Self::InstallStep,
        Self::ExecStarted,
        Self::ExecOutput,
        Self::ExecExited,
        Self::ApplyStarted,
        Self::ApplyProgress,
        Self::ApplyDone,
        Self::ApplyFailed,
        Self::DiscoverProgress,
        Self::DiscoverDone,
        Self::FilePushed,
        Self::FilePulled,
        Self::AuthFailed,
        Self::TokenRotated,
        Self::Log,
        Self::Gap,
        Self::Lagged,
    ];

    /// As it stands in the `event` field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentStarted => "agent.started",
            Self::AgentReady => "agent.ready",
            Self::AgentStopping => "agent.stopping",
            Self::InstallStep => "install.step",
            Self::ExecStarted => "exec.started",
            Self::ExecOutput => "exec.output",
            Self::ExecExited => "exec.exited",
            Self::ApplyStarted => "apply.started",
            Self::ApplyProgress => "apply.progress",
            Self::ApplyDone => "apply.done",
            Self::ApplyFailed => "apply.failed",
            Self::DiscoverProgress => "discover.progress",
            Self::DiscoverDone => "discover.done",
            Self::FilePushed => "file.pushed",
            Self::FilePulled => "file.pulled",
            Self::AuthFailed => "auth.failed",
            Self::TokenRotated => "token.rotated",
            Self::Log => "log",
            Self::Gap => "gap",
            Self::Lagged => "lagged",
        }
    }

    /// Its place in [`EventName::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a pattern takes in a name: `*` any, `exec.*` all that begin so, anything else the one.
pub fn event_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(group) => group.ends_with('.') && name.starts_with(group),
        None => pattern == name,
    }
}

/// Where an event stands: which agent told it, and which of its events it is, from 1 on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventId {
    /// New at each start of the agent: the first 16 digits of its id.
    pub epoch: String,
    /// One more with each event, also with those that a filter leaves out.
    pub counter: u64,
}

/// The text is not an event's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedEventId;

impl fmt::Display for MalformedEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the id of an event: <epoch>-<counter>")
    }
}

impl std::error::Error for MalformedEventId {}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.counter)
    }
}

impl FromStr for EventId {
    type Err = MalformedEventId;

    fn from_str(text: &str) -> Result<Self, MalformedEventId> {
        let (epoch, counter) = text.rsplit_once('-').ok_or(MalformedEventId)?;
        let good_epoch = (1..=64).contains(&epoch.len()) && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let good_counter =
            counter.bytes().all(|byte| byte.is_ascii_digit()) && (counter == "0" || !counter.starts_with('0'));
        if !good_epoch || !good_counter {
            return Err(MalformedEventId);
        }
        let counter = counter.parse().map_err(|_| MalformedEventId)?;
        Ok(Self { epoch: epoch.to_owned(), counter })
    }
}

/// `agent.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStartedEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// New at each start.
    pub agent_id: String,
    /// Of the executable.
    pub version: String,
    /// The agent's own process.
    pub pid: u32,
}

/// `agent.ready`, `agent.stopping` and `token.rotated`: that it is so is all there is to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlainEvent {
    /// When, RFC 3339.
    pub ts: String,
}

/// `exec.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecStartedEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// The agent's name for the call.
    pub process_id: String,
    /// The request's id.
    pub request_id: String,
    /// In which it runs, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The program's number in the guest.
    pub pid: u32,
    /// The program and its arguments, where it is not a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// SHA-256 of the script; its text is never told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_sha256: Option<String>,
    /// Bytes by which this was longer: then texts and lists in it have been cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_bytes: Option<u64>,
}

/// `exec.output`: a piece of output, exactly as it came, in either of two forms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecOutputEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// The agent's name for the call.
    pub process_id: String,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The bytes, where they are UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_b64: Option<String>,
}

/// `exec.exited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecExitedEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// The agent's name for the call.
    pub process_id: String,
    /// The request's id.
    pub request_id: String,
    /// In which it ran, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The program's number in the guest.
    pub pid: u32,
    /// As in the call's result; absent where the call was ended from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rc: Option<i64>,
    /// The signal that ended it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its time-out ended it.
    #[serde(default)]
    pub timed_out: bool,
    /// Why there is no `rc`: `cancelled`, `agent_stopping` or `internal_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since the start.
    pub duration_ms: u64,
}

/// `install.step`: the guest's installation has come this far. Only where the agent has gates to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstallStepEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// `installing`, `install_failed`, or `ready` once nothing is missing.
    pub stage: super::Stage,
    /// The gates that do not hold yet, or why they never will; as in `/health`.
    pub waiting_for: Vec<String>,
}

/// `auth.failed`: how often since the last one of the same peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthFailedEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// The peer's address, without its port; `others` for all of them where there are too many.
    pub peer: String,
    /// The path of the newest of the requests.
    pub path: String,
    /// How many there were.
    pub count: u64,
}

/// `log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// `warn` or `error`.
    pub level: String,
    /// The part of the program that says it.
    pub target: String,
    /// The line, with its fields behind it.
    pub text: String,
    /// Bytes by which the line was longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_bytes: Option<u64>,
}

/// Why there is a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// It is older than what is held.
    Expired,
    /// Another agent told it: this one has started since.
    Epoch,
    /// This agent has not come that far.
    Future,
    /// It is not the id of an event.
    Malformed,
    /// What a newer agent may say.
    #[serde(other)]
    Unknown,
}

/// `gap`: what follows does not join on to what the reader has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GapEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// Why.
    pub reason: GapReason,
    /// The id of the first event that is held, and with which the stream goes on.
    pub first: String,
}

/// `lagged`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaggedEvent {
    /// When, RFC 3339.
    pub ts: String,
    /// How many events this reader has lost, of those that its filter lets through.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_their_places() {
        for (number, name) in EventName::ALL.into_iter().enumerate() {
            assert_eq!(name.number(), number);
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, is) in [
            ("*", "log", true),
            ("exec.*", "exec.started", true),
            ("exec.*", "executor.started", false),
            ("exec.*", "exec", false),
            ("exec*", "exec.started", false),
            ("exec.started", "exec.started", true),
            ("exec", "exec.started", false),
            ("", "log", false),
            ("*.started", "exec.started", false),
        ] {
            assert_eq!(event_matches(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for bad in ["", "5", "a", "a-", "-1", "a-+1", "a-01", "a--1", "a b-1", "a-18446744073709551616", "a-1 ", "é-1"]
        {
            assert_eq!(bad.parse::<EventId>(), Err(MalformedEventId), "{bad}");
        }
        assert_eq!("a-0".parse(), Ok(EventId { epoch: "a".into(), counter: 0 }));
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_printed(epoch in "[0-9a-zA-Z]{1,64}", counter in any::<u64>()) {
            let id = EventId { epoch, counter };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn any_text_is_an_id_or_not(text in any::<String>()) {
            if let Ok(id) = text.parse::<EventId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
