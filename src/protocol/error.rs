//! The error body and its codes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, as one word that programs can compare.
///
/// The HTTP status of each is fixed by [`ErrorCode::status`], so that no handler chooses one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request is not of the form that the endpoint takes.
    BadRequest,
    /// A field that should be base64 is not.
    BadBase64,
    /// No token, or a wrong one.
    Unauthorized,
    /// The `Host` header names neither loopback nor an allowed host.
    ForbiddenHost,
    /// The request bears an `Origin`: it comes from a web page.
    ForbiddenOrigin,
    /// The peer's address is outside the allowed networks.
    ForbiddenPeer,
    /// The agent's account may not do this in the guest.
    NotPermitted,
    /// No such path or thing.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The request id or agent id clashes with what the agent knows; nothing was run.
    Conflict,
    /// Something of the kind runs already, and the caller asked not to wait.
    Busy,
    /// Every slot and every place in the queue is taken, or waiting for a slot took too long.
    QueueFull,
    /// The body's content type is not the endpoint's.
    UnsupportedMediaType,
    /// The body is over the limit.
    TooLarge,
    /// The request's body stalled.
    Timeout,
    /// The agent does not offer this (here, or yet).
    Unsupported,
    /// The program could not be started; nothing ran.
    SpawnFailed,
    /// The agent is up, the guest is not: see the stage.
    NotReady,
    /// The agent is going down; the body says whether the call had started.
    AgentStopping,
    /// The request names another protocol version.
    ProtocolVersionMismatch,
    /// The call was ended by its caller.
    Cancelled,
    /// A bug or a fault in the agent; its log has the whole of it under the request id.
    InternalError,
    /// A code that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// The HTTP status that goes with the code.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::BadBase64 | Self::ProtocolVersionMismatch => 400,
            Self::Unauthorized => 401,
            Self::ForbiddenHost | Self::ForbiddenOrigin | Self::ForbiddenPeer | Self::NotPermitted => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Timeout => 408,
            Self::Conflict | Self::Busy | Self::Cancelled => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::SpawnFailed => 422,
            Self::QueueFull => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::Unsupported => 501,
            Self::NotReady | Self::AgentStopping => 503,
        }
    }

    /// The code as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::BadBase64 => "bad_base64",
            Self::Unauthorized => "unauthorized",
            Self::ForbiddenHost => "forbidden_host",
            Self::ForbiddenOrigin => "forbidden_origin",
            Self::ForbiddenPeer => "forbidden_peer",
            Self::NotPermitted => "not_permitted",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::QueueFull => "queue_full",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::TooLarge => "too_large",
            Self::Timeout => "timeout",
            Self::Unsupported => "unsupported",
            Self::SpawnFailed => "spawn_failed",
            Self::NotReady => "not_ready",
            Self::AgentStopping => "agent_stopping",
            Self::ProtocolVersionMismatch => "protocol_version_mismatch",
            Self::Cancelled => "cancelled",
            Self::InternalError => "internal_error",
            Self::Unknown => "unknown",
        }
    }
}

/// The body of every answer that is not a success.
///
/// `not_ready` adds the gates' state; `agent_stopping` and `cancelled` of an exec add what the call had done until
/// then, with the fields' meaning of [`ExecResult`](super::ExecResult).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Which error.
    pub error: ErrorCode,
    /// What is wrong with this very request, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do about it, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// With `not_ready`: the stage that the agent is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<super::Stage>,
    /// With `not_ready`: the gates that do not hold yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// With `agent_stopping` and `cancelled`: whether the program had been started; false means that nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Where it had been started: the agent's name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<String>,
    /// With `cancelled` and `agent_stopping` of a started one: processes that were ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed: Option<u64>,
    /// Likewise: processes that could not be ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<Vec<u32>>,
    /// Standard output until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The bytes of stdout in base64, only where `stdout` does not give them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_b64: Option<String>,
    /// Likewise of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_b64: Option<String>,
}

impl ErrorBody {
    /// A body with the code alone.
    pub const fn new(error: ErrorCode) -> Self {
        Self {
            error,
            detail: None,
            hint: None,
            stage: None,
            waiting_for: Vec::new(),
            started: None,
            process_id: None,
            killed: None,
            survivors: None,
            stdout: None,
            stderr: None,
            stdout_b64: None,
            stderr_b64: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_wire_are_the_ones_of_as_str() {
        for code in [ErrorCode::BadBase64, ErrorCode::QueueFull, ErrorCode::ProtocolVersionMismatch, ErrorCode::Unknown]
        {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }

    #[test]
    fn a_code_of_a_newer_agent_is_read_as_unknown() {
        let body: ErrorBody = serde_json::from_str(r#"{"error":"invented_later","more":1}"#).unwrap();
        assert_eq!(body.error, ErrorCode::Unknown);
    }
}
