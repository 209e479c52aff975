//! What a supervised agent is led by: its stdin, whose other end its supervisor holds.
//!
//! Implementation note: a pipe is the one thing that works alike on every system, needs no name that others could take,
//! and tells by itself when its holder is gone. The agent reads nothing else from stdin, and no call inherits it.

use std::io;

use tokio::sync::mpsc;

/// What the supervisor writes to ask for the agent's end.
pub(super) const STOP: &[u8] = b"s";

/// Requests that may wait; the agent counts to three.
const QUEUE: usize = 8;

/// The agent's end.
#[derive(Debug)]
pub(in crate::guest) struct Lead(mpsc::Receiver<()>);

impl Lead {
    /// Takes stdin for it.
    ///
    /// # Errors
    /// When there is no thread to read it.
    pub(in crate::guest) fn take() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        // a thread and not the runtime's: the end of the process waits for none of those that it has not started
        std::thread::Builder::new().name("lead".into()).spawn(move || read(io::stdin().lock(), &sender))?;
        Ok(Self(receiver))
    }

    /// The next request to stop; waits for ever once the supervisor is gone.
    pub(in crate::guest) async fn stop(&mut self) {
        match self.0.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        }
    }
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
    tracing::warn!("the supervisor is gone; this agent goes on and nothing starts it again should it crash");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_and_the_end_is_none() {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        read(&b"s?s"[..], &sender);
        drop(sender);
        assert_eq!(std::iter::from_fn(|| receiver.blocking_recv()).count(), 2);
    }

    #[test]
    fn more_than_fit_hold_nothing_up() {
        let (sender, receiver) = mpsc::channel(QUEUE);
        read(&[b's'; 100][..], &sender);
        assert_eq!(receiver.len(), QUEUE);
    }
}
