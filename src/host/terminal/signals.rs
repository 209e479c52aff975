//! The signals by which a command that holds a terminal is asked to end, and the one after which it goes on.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::host::{Error, ErrorKind, Result};

/// How a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// SIGINT: Ctrl-C, where the terminal is not raw.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGQUIT.
    Quit,
}

/// All signals that would end the process and leave its terminal raw; caught from its creation on.
#[derive(Debug)]
pub struct Endings {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

fn catch(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::new(ErrorKind::Internal, "could not catch signals").with_source(error))
}

impl Endings {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn catch() -> Result<Self> {
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
            quit: catch(SignalKind::quit())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.interrupt.recv() => Ending::Interrupt,
            _ = self.terminate.recv() => Ending::Terminate,
            _ = self.hang_up.recv() => Ending::HangUp,
            _ = self.quit.recv() => Ending::Quit,
        }
    }
}

/// Tells when the process goes on after it was stopped.
#[derive(Debug)]
pub struct Resumed(Signal);

impl Resumed {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the signal cannot be caught.
    pub fn watch() -> Result<Self> {
        catch(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw())).map(Self)
    }

    /// The next time.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
