//! What the guest is, how busy it is, and its clocks.

use reqwest::Method;

use super::{super::Result, AgentClient};
use crate::protocol::{
    GuestTime, Metrics, PATH_SYSTEM_INFO, PATH_SYSTEM_METRICS, PATH_SYSTEM_TIME, SetTime, SystemInfo, TimeSet,
};

impl AgentClient {
    /// What the guest is; with `packages` also what is installed in it, which takes it seconds.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn system_info(&self, packages: bool) -> Result<SystemInfo> {
        let query = if packages { "?packages=1" } else { "" };
        self.list(&format!("{PATH_SYSTEM_INFO}{query}")).await
    }

    /// How busy the guest and its agent are.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn metrics(&self) -> Result<Metrics> {
        self.list(PATH_SYSTEM_METRICS).await
    }

    /// The guest's clocks.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn system_time(&self) -> Result<GuestTime> {
        self.list(PATH_SYSTEM_TIME).await
    }

    /// Steps the guest's clock; never repeated, since a step by an offset may not be made twice.
    ///
    /// # Errors
    /// [`ErrorKind::Rejected`](super::super::ErrorKind::Rejected) where the agent may not or the time is none.
    pub async fn set_system_time(&self, request: &SetTime) -> Result<TimeSet> {
        self.podlinks_own("set the clock")?;
        let request = self.authorized(Method::POST, PATH_SYSTEM_TIME).json(request);
        self.change(request, self.settings.call_deadline).await
    }
}
