//! Ctrl-C and SIGTERM, as futures.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Exit, Failure};
use crate::host::{Error, ErrorKind};

/// The two signals by which a command is asked to end; caught from its creation on.
pub(in crate::cmd) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(in crate::cmd) fn catch() -> Result<Self, Error> {
        let catch = |kind| {
            signal(kind).map_err(|error| Error::new(ErrorKind::Internal, "could not catch signals").with_source(error))
        };
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// The next one, as the exit code that goes with it.
    pub(super) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::INTERRUPTED,
            _ = self.terminate.recv() => Exit::TERMINATED,
        }
    }

    /// The work's result, or the failure of an interrupted command.
    pub(in crate::cmd) async fn or<T>(&mut self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            exit = self.next() => Err(Failure::interrupted("interrupted", exit)),
        }
    }
}
