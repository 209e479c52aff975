//! The signals by which a command is asked to end, as futures.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Exit, Failure};
use crate::host::{Error, ErrorKind};

/// The signals by which a command is asked to end; caught from its creation on.
pub(in crate::cmd) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Those that only a command with the terminal in its hands has to catch.
    terminal: Option<(Signal, Signal)>,
}

fn catch(kind: SignalKind) -> Result<Signal, Error> {
    signal(kind).map_err(|error| Error::new(ErrorKind::Internal, "could not catch signals").with_source(error))
}

impl Interrupts {
    /// Catches Ctrl-C and SIGTERM.
    pub(in crate::cmd) fn catch() -> Result<Self, Error> {
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            terminal: None,
        })
    }

    /// Catches SIGHUP and SIGQUIT too, which would end the process and leave its terminal as it is.
    ///
    /// Not for other commands: `nohup` has them ignore SIGHUP.
    pub(super) fn catch_terminals_too(&mut self) -> Result<(), Error> {
        if self.terminal.is_none() {
            self.terminal = Some((catch(SignalKind::hangup())?, catch(SignalKind::quit())?));
        }
        Ok(())
    }

    /// The next one, as the exit code that goes with it.
    pub(super) async fn next(&mut self) -> Exit {
        let terminals = async {
            match &mut self.terminal {
                Some((hang_up, quit)) => tokio::select! {
                    _ = hang_up.recv() => Exit::HUNG_UP,
                    _ = quit.recv() => Exit::QUIT,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Exit::INTERRUPTED,
            _ = self.terminate.recv() => Exit::TERMINATED,
            exit = terminals => exit,
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
