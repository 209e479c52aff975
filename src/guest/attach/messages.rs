//! What goes over the WebSocket, put together.

use axum::extract::ws::Message;

use crate::protocol::{AttachStatus, ErrorBody, ErrorCode};

/// A message of a channel.
pub(super) fn on(channel: u8, payload: &[u8]) -> Message {
    let mut message = Vec::with_capacity(payload.len() + 1);
    message.push(channel);
    message.extend_from_slice(payload);
    Message::Binary(message.into())
}

/// These types hold nothing that JSON cannot: strings, numbers, lists.
pub(super) fn json(value: &AttachStatus) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

pub(super) fn error(code: ErrorCode, detail: &str) -> AttachStatus {
    AttachStatus::Error(Box::new(ErrorBody { detail: Some(detail.to_owned()), ..ErrorBody::new(code) }))
}

/// A close frame has room for 123 bytes of reason.
pub(super) fn shortened(reason: &str) -> String {
    let mut end = reason.len().min(123);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(200)).len(), 123);
        assert_eq!(shortened(&"\u{e9}".repeat(200)).len(), 122);
    }
}
