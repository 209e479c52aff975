//! The agent's own restart.

use reqwest::Method;

use super::{super::Result, AgentClient};
use crate::protocol::{PATH_AGENT_RESTART, RestartAccepted};

impl AgentClient {
    /// Has the agent end once its calls have their answers, to be started again by whoever keeps it alive.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](super::super::ErrorKind::Unsupported) where nothing would start it again.
    pub async fn restart_agent(&self) -> Result<RestartAccepted> {
        self.podlinks_own("be restarted")?;
        self.change(self.authorized(Method::POST, PATH_AGENT_RESTART), self.settings.call_deadline).await
    }
}
