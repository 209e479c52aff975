//! What a supervised agent is led by: its stdin, whose other end its supervisor holds.
//!
//! Implementation note: a pipe is the one thing that works alike on every system, needs no name that others could take,
//! and tells by itself when its holder is gone. The agent reads nothing else from stdin, and no call inherits it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;

use super::super::signals::StopRequests;

/// What the supervisor writes to ask for the agent's end.
pub(super) const STOP: &[u8] = b"s";

/// Whether somebody still holds the other end.
#[derive(Debug, Clone)]
pub struct Lead(Arc<AtomicBool>);

impl Lead {
    pub(in crate::guest) fn is_held(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Takes this process' stdin for what its supervisor asks.
///
/// # Errors
/// When there is no thread to read it.
pub fn hear_supervisor() -> io::Result<(StopRequests, Lead)> {
    let (sender, requests) = StopRequests::channel();
    // a thread and not the runtime's: the end of the process waits for none of those that it has not started
    let held = Arc::new(AtomicBool::new(true));
    let holds = Arc::clone(&held);
    std::thread::Builder::new().name("lead".into()).spawn(move || {
        read(io::stdin().lock(), &sender);
        holds.store(false, Ordering::SeqCst);
        tracing::warn!("the supervisor is gone; this agent goes on and nothing starts it again should it crash");
    })?;
    Ok((requests, Lead(held)))
}

fn read(mut from: impl io::Read, sender: &mpsc::Sender<()>) {
    let mut byte = [0];
    loop {
        match from.read(&mut byte) {
            Ok(1..) => {
                if byte == STOP {
                    let _ = sender.try_send(()); // a full queue has been told enough
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_and_more_than_fit_hold_nothing_up() {
        for (said, heard) in [(&b"s?s"[..], 2), (b"", 0), (&[b's'; 100], 8)] {
            let (sender, requests) = StopRequests::channel();
            read(said, &sender);
            assert_eq!(requests.waiting(), heard);
        }
    }
}
