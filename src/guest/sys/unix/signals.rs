//! SIGINT and SIGTERM: heard, and sent.

use std::io;

use rustix::process::{Pid, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::guest::signals::Signal;

/// Both, from the moment of listening on.
#[derive(Debug)]
pub(in crate::guest) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

/// Asks the agent with this process number to end, which it does once its calls have.
///
/// # Errors
/// When there is no such process, or it is not ours to ask.
pub fn ask_to_stop(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, rustix::process::Signal::TERM)?)
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
