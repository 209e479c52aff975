//! A program's stdin while it stays open: written to in order, closed once.

use std::{io, sync::Arc};

use tokio::sync::{Mutex, watch};

use super::super::sys::InputPipe;

/// The way into a program.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: Arc<Mutex<Option<InputPipe>>>,
    closing: watch::Sender<bool>,
}

/// The input was closed, here or by the program, after so many of the bytes had been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputClosed {
    /// Bytes that the program's stdin had taken.
    pub accepted: usize,
}

impl Input {
    /// A way in; `first` goes before everything else.
    pub(crate) fn new(pipe: InputPipe, first: Vec<u8>) -> Arc<Self> {
        let input = Self { pipe: Arc::new(Mutex::new(Some(pipe))), closing: watch::Sender::new(false) };
        if !first.is_empty()
            && let Ok(mut held) = Arc::clone(&input.pipe).try_lock_owned()
        {
            let closing = input.closing.subscribe();
            tokio::spawn(async move {
                let done = write_all(held.as_ref(), &first, closing).await;
                if done < first.len() {
                    *held = None;
                }
            });
        }
        Arc::new(input)
    }

    /// Writes all of it, as the program takes it. Dropped before it is ready, a part may have been written.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), InputClosed> {
        let mut pipe = self.pipe.lock().await;
        let accepted = write_all(pipe.as_ref(), bytes, self.closing.subscribe()).await;
        if accepted < bytes.len() || *self.closing.borrow() {
            *pipe = None;
            return Err(InputClosed { accepted });
        }
        Ok(())
    }

    /// Lets the program see the end once it has read what was written before.
    pub(crate) async fn close(&self) {
        *self.pipe.lock().await = None;
    }

    /// The program is gone: whoever waits to write to it, or to its children, waits no longer.
    pub(crate) fn shut(&self) {
        self.closing.send_replace(true);
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }

    /// Whether it is still open, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !*self.closing.borrow() && self.pipe.try_lock().map_or(true, |pipe| pipe.is_some())
    }
}

async fn write_all(pipe: Option<&InputPipe>, bytes: &[u8], mut closing: watch::Receiver<bool>) -> usize {
    let Some(pipe) = pipe else { return 0 };
    let mut done = 0;
    let write = async {
        while done < bytes.len() {
            match pipe.write(&bytes[done..]).await {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "a program's stdin takes nothing more");
                    break;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = write => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
    done
}
