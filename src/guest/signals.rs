//! The signals that ask the agent to end.

use std::io;

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

/// The stream of those signals; from its making on they no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals(sys::Signals);

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// When the system refuses, or outside a runtime.
    pub fn listen() -> io::Result<Self> {
        sys::Signals::listen().map(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        self.0.next().await
    }
}
