//! The messages of an attached call: WebSocket, binary, the first byte of each names its channel.
//!
//! The channels are those of Kubernetes' remote command protocol, version 5.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ErrorBody, ExecRequest, ExecResult, Gap, Started};

/// Channel of what the program reads.
pub const CHANNEL_STDIN: u8 = 0;
/// Channel of what it writes to standard output, or to its terminal.
pub const CHANNEL_STDOUT: u8 = 1;
/// Channel of what it writes to standard error.
pub const CHANNEL_STDERR: u8 = 2;
/// Channel of JSON: from the agent [`AttachStatus`], from the client [`AttachControl`].
pub const CHANNEL_STATUS: u8 = 3;
/// Channel of a [`TerminalSize`] as JSON.
pub const CHANNEL_RESIZE: u8 = 4;
/// Channel whose one payload byte names the channel that is closed; a client closes [`CHANNEL_STDIN`].
pub const CHANNEL_CLOSE: u8 = 255;

/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// The first message of `GET /exec/attach`, as text or binary: the call's fields, and a terminal where one is wanted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttachRequest {
    /// What to run.
    #[serde(flatten)]
    pub exec: ExecRequest,
    /// Run it in a terminal of its own: stdin, stdout and stderr are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
}

/// A terminal for a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Pty {
    /// Lines, 1 to 65535; others are taken to the nearest.
    #[schema(value_type = u16)]
    pub rows: i64,
    /// Columns, likewise.
    #[schema(value_type = u16)]
    pub cols: i64,
    /// What `TERM` is set to.
    pub term: String,
}

impl Default for Pty {
    fn default() -> Self {
        Self { rows: 24, cols: 80, term: "xterm-256color".to_owned() }
    }
}

/// A terminal's size; what is out of range is taken to the nearest that is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalSize {
    /// Columns.
    #[schema(value_type = u16)]
    pub width: i64,
    /// Lines.
    #[schema(value_type = u16)]
    pub height: i64,
}

/// From the agent, on [`CHANNEL_STATUS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AttachStatus {
    /// The program ended: the last message but the close. The fields of [`ExecResult`] less the output.
    Result(Box<ExecResult>),
    /// The call was refused, ended, or failed: likewise the last.
    Error(Box<ErrorBody>),
    /// The first.
    Started(Started),
    /// Output that this client will not get.
    Gap {
        /// Which.
        gap: Gap,
    },
    /// The client's wish to detach is fulfilled: the program runs on as a detached one. The last.
    Detached {
        /// Always true.
        detached: bool,
        /// The offset behind the last byte that was sent.
        offset: u64,
    },
}

/// From the client, on [`CHANNEL_STATUS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachControl {
    /// True: let the program run on without this client, as a detached one.
    #[serde(default)]
    pub detach: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;

    #[test]
    fn every_status_is_read_as_what_it_was() {
        for status in [
            AttachStatus::Result(Box::default()),
            AttachStatus::Result(Box::new(ExecResult { rc: 3, process_id: "p-1".into(), ..ExecResult::default() })),
            AttachStatus::Error(Box::new(ErrorBody {
                process_id: Some("p-1".into()),
                ..ErrorBody::new(ErrorCode::Cancelled)
            })),
            AttachStatus::Started(Started { process_id: "p-1".into(), pid: Some(7) }),
            AttachStatus::Gap { gap: Gap { from: 1, to: 2 } },
            AttachStatus::Detached { detached: true, offset: 9 },
        ] {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(serde_json::from_str::<AttachStatus>(&text).unwrap(), status, "{text}");
        }
    }

    #[test]
    fn a_request_has_the_calls_fields_beside_the_terminal() {
        let request: AttachRequest =
            serde_json::from_str(r#"{"argv":["a"],"timeout_sec":0,"pty":{"rows":5},"later":1}"#).unwrap();
        assert_eq!(request.exec.argv, Some(vec!["a".to_owned()]));
        assert_eq!(request.pty, Some(Pty { rows: 5, ..Pty::default() }));
        assert_eq!(serde_json::from_str::<AttachRequest>(r#"{"argv":["a"]}"#).unwrap().pty, None);
    }
}
