//! Whom the agent runs as.

/// The account and session that calls run in, looked up once at the start.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// The user's name, or its number where it has none.
    pub(super) user: String,
    /// The session's id, as the system counts them.
    pub(super) session_id: u32,
    /// Whether the session has a terminal or desktop.
    pub(super) interactive: bool,
    /// Whether the agent holds the machine's full rights.
    pub(super) elevated: bool,
}
