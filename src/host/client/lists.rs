//! What the agent and the guest have at one moment: calls, sessions, processes, sockets.

use reqwest::Method;

use super::{super::Result, AgentClient, http::segment};
use crate::protocol::{
    PATH_PROCESSES, PATH_SESSIONS, PATH_SYSTEM_PROCESSES, PATH_SYSTEM_SOCKETS, ProcessInfo, ProcessList, SessionEnded,
    SessionInfo, SessionList, SystemProcesses, SystemSockets,
};

impl AgentClient {
    /// The calls that the agent knows, in the order in which they were asked for; ended ones for an hour.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        Ok(self.list::<ProcessList>(PATH_PROCESSES).await?.processes)
    }

    /// The sessions in which something runs or waits, by name.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>> {
        Ok(self.list::<SessionList>(PATH_SESSIONS).await?.sessions)
    }

    /// Ends all calls of a session, those that run and those that wait, and says how many they were.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](super::super::ErrorKind::NotFound) where nothing of that name runs or waits.
    pub async fn end_session(&self, name: &str) -> Result<u64> {
        self.podlinks_own("end sessions")?;
        let request = self.authorized(Method::DELETE, &format!("{PATH_SESSIONS}/{}", segment(name)));
        let within = self.settings.call_deadline + self.settings.kill_margin;
        Ok(self.change::<SessionEnded>(request, within).await?.ended)
    }

    /// All processes of the guest.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn system_processes(&self) -> Result<SystemProcesses> {
        self.list(PATH_SYSTEM_PROCESSES).await
    }

    /// All sockets of the guest that can be reached.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn system_sockets(&self) -> Result<SystemSockets> {
        self.list(PATH_SYSTEM_SOCKETS).await
    }

    /// A GET of what podlink's own agent alone tells.
    pub(super) async fn list<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.podlinks_own("list what runs")?;
        self.get(path).await?.parse(&self.place)
    }
}
