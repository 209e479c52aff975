//! `GET /logs`: the guest's logs, a JSON object a line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of JSON objects, one a line.
pub const MEDIA_NDJSON: &str = "application/x-ndjson";

/// Which of the guest's logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuestLog {
    /// The agent's own.
    #[default]
    Agent,
    /// The log of the guest's installation.
    Install,
}

impl GuestLog {
    /// Its name in queries and lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Install => "install",
        }
    }
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When it was said, RFC 3339; null where the line does not tell.
    #[serde(default)]
    pub time: Option<String>,
    /// The line, without its end; what is no UTF-8 shows as U+FFFD. A very long one is cut and says so.
    pub text: String,
    /// Lines before this one are gone: they were given up before they were read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed: bool,
}
