//! The signals that ask the agent to end.

use std::io;

use super::{supervisor::Lead, sys};

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

/// The stream of those signals; from its making on they no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    system: sys::Signals,
    lead: Option<Lead>,
}

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// When the system refuses, or outside a runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { system: sys::Signals::listen()?, lead: None })
    }

    /// Starts listening to the process' supervisor as well, which speaks through stdin.
    ///
    /// # Errors
    /// As [`Signals::listen`].
    pub fn listen_supervised() -> io::Result<Self> {
        Ok(Self { lead: Some(Lead::take()?), ..Self::listen()? })
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        let Some(lead) = &mut self.lead else { return self.system.next().await };
        tokio::select! {
            signal = self.system.next() => signal,
            () = lead.stop() => Signal::Terminate,
        }
    }
}
