//! SIGINT and SIGTERM.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

use crate::guest::signals::Signal;

/// Both, from the moment of listening on.
#[derive(Debug)]
pub(in crate::guest) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub(in crate::guest) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(in crate::guest) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await, // the runtime is going down
        }
    }
}
