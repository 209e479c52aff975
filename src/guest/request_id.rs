//! The id of a request: taken from its caller or made.

/// A request's id, as an extension of every admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId {
    /// The id, returned in `X-Request-Id` and logged.
    pub id: String,
    /// Whether the caller gave it: only then may the request be joined by a retry.
    pub by_caller: bool,
}
