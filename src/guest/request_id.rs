//! The id of a request: taken from its caller or made.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderMap;

use crate::protocol::HEADER_REQUEST_ID;

/// Most characters of an id.
const MAX_LEN: usize = 128;

/// A request's id, as an extension of every admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId {
    /// The id, returned in `X-Request-Id` and logged.
    pub id: String,
    /// Whether the caller gave it: only then may the request be joined by a retry.
    pub by_caller: bool,
}

/// The caller gave something that cannot be an id. It is refused rather than replaced: a caller that retries under
/// it must not have its call run twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedRequestId;

impl RequestId {
    /// The caller's, where it gave one.
    pub(super) fn given(headers: &HeaderMap) -> Result<Option<Self>, MalformedRequestId> {
        let mut values = headers.get_all(HEADER_REQUEST_ID).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let bytes = value.as_bytes();
        let good = (1..=MAX_LEN).contains(&bytes.len())
            && bytes.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'~' | b'-'));
        match std::str::from_utf8(bytes) {
            Ok(id) if good && values.next().is_none() => Ok(Some(Self { id: id.to_owned(), by_caller: true })),
            _ => Err(MalformedRequestId),
        }
    }

    /// A new one: the agent's id makes it unique among agents, a counter within this one.
    pub(super) fn make(agent_id: &str) -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(1);
        let agent = agent_id.get(..8).unwrap_or(agent_id);
        Self { id: format!("r-{agent}-{}", COUNTER.fetch_add(1, Ordering::Relaxed)), by_caller: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_an_id() {
        let given = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER_REQUEST_ID, value.parse().unwrap());
            }
            RequestId::given(&headers)
        };
        assert_eq!(given(&[]), Ok(None));
        let longest = "x".repeat(128);
        for good in ["a", "A.b_c~d-9", &longest] {
            assert_eq!(given(&[good]), Ok(Some(RequestId { id: good.to_owned(), by_caller: true })));
        }
        for bad in ["", "a b", "a/b", "ä", "a\"b", &format!("{longest}x")] {
            assert_eq!(given(&[bad]), Err(MalformedRequestId), "{bad}");
        }
        assert_eq!(given(&["a", "a"]), Err(MalformedRequestId));
        assert!(RequestId::make("0123456789") != RequestId::make("0123456789"));
    }
}
