//! The signals that ask the agent to end.

use std::io;

use tokio::sync::mpsc;

use super::sys;

/// What the agent was asked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A polite request of another process or the system.
    Terminate,
}

impl Signal {
    /// Its number, as it goes into an exit code.
    pub const fn number(self) -> u8 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

/// Requests that may wait; the agent counts to three.
const WAITING: usize = 8;

/// Requests to stop that come by other ways than signals: of a supervisor, or of Windows' service manager.
#[derive(Debug)]
pub struct StopRequests(mpsc::Receiver<()>);

impl StopRequests {
    /// The end to send them from, where those that find no room say nothing new, and the one to hear them at.
    pub(super) fn channel() -> (mpsc::Sender<()>, Self) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (sender, Self(receiver))
    }

    /// The next one; waits for ever once there is nobody to make any.
    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.0.len()
    }
}

/// What a service is started with.
#[derive(Debug)]
pub struct ServiceStart {
    /// Its manager's requests.
    pub requests: StopRequests,
    /// Whether its manager could be told to start it again should it fail.
    pub recovery: io::Result<()>,
    /// Whether it does so where the service ends with a code that is not 0.
    pub restarts: bool,
}

/// The stream of those signals; from its making on they no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    system: sys::Signals,
    requests: Option<StopRequests>,
}

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// When the system refuses, or outside a runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { system: sys::Signals::listen()?, requests: None })
    }

    /// Hears these as well.
    #[must_use]
    pub fn and(self, requests: Option<StopRequests>) -> Self {
        Self { requests, ..self }
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        let Some(requests) = &mut self.requests else { return self.system.next().await };
        tokio::select! {
            signal = self.system.next() => signal,
            () = requests.next() => Signal::Terminate,
        }
    }
}
