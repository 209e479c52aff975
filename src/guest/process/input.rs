//! A program's stdin while it stays open: written to in order, closed once.

use std::{
    io,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex, watch};
use tracing::Instrument as _;

use super::super::sys::{InputEnd, Pty};

/// The way into a program.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: Arc<Mutex<Open>>,
    /// The terminal that it belongs to, until the program is gone.
    terminal: StdMutex<Option<Arc<Pty>>>,
    closing: watch::Sender<bool>,
}

/// The end that is written to, while it is open.
#[derive(Debug)]
struct Open {
    end: Option<InputEnd>,
    /// The last byte that was written does not end a line.
    midline: bool,
}

/// The input was closed, here or by the program, after so many of the bytes had been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputClosed {
    /// Bytes that the program's stdin had taken.
    pub accepted: usize,
}

impl Input {
    /// A way in; `first` goes before everything else.
    pub(crate) fn new(end: InputEnd, first: Vec<u8>) -> Arc<Self> {
        let terminal = StdMutex::new(end.terminal());
        let pipe = Arc::new(Mutex::new(Open { end: Some(end), midline: false }));
        let input = Self { pipe, terminal, closing: watch::Sender::new(false) };
        if !first.is_empty()
            && let Ok(mut held) = Arc::clone(&input.pipe).try_lock_owned()
        {
            let closing = input.closing.subscribe();
            let writing = async move {
                let done = held.write_all(&first, closing).await;
                if done < first.len() {
                    held.end = None;
                }
            };
            tokio::spawn(writing.in_current_span());
        }
        Arc::new(input)
    }

    /// Writes all of it, as the program takes it. Dropped before it is ready, a part may have been written.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), InputClosed> {
        let mut pipe = self.pipe.lock().await;
        let accepted = pipe.write_all(bytes, self.closing.subscribe()).await;
        if accepted < bytes.len() || *self.closing.borrow() {
            pipe.end = None;
        }
        // a program that has read all of it and ended meanwhile has taken it
        if accepted < bytes.len() { Err(InputClosed { accepted }) } else { Ok(()) }
    }

    /// Lets the program see the end once it has read what was written before. In a terminal that is what Ctrl-D does,
    /// where the program reads by lines.
    pub(crate) async fn close(&self) {
        let mut pipe = self.pipe.lock().await;
        let farewell = pipe.end.as_ref().map(|end| end.farewell(pipe.midline)).unwrap_or_default();
        pipe.write_all(&farewell, self.closing.subscribe()).await;
        pipe.end = None;
    }

    /// Gives the program's terminal, where it has one, another size.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let resized = self.terminal().as_ref().map(|terminal| terminal.resize(rows, cols));
        if let Some(Err(error)) = resized {
            tracing::debug!(%error, "the terminal keeps its size");
        }
    }

    /// The program is gone: whoever waits to write to it, or to its children, waits no longer.
    pub(crate) fn shut(&self) {
        self.closing.send_replace(true);
        *self.terminal() = None;
        if let Ok(mut pipe) = self.pipe.try_lock() {
            pipe.end = None;
        }
    }

    /// Whether it is still open, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !*self.closing.borrow() && self.pipe.try_lock().map_or(true, |pipe| pipe.end.is_some())
    }

    fn terminal(&self) -> MutexGuard<'_, Option<Arc<Pty>>> {
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// How many of the bytes were taken.
    async fn write_all(&mut self, bytes: &[u8], mut closing: watch::Receiver<bool>) -> usize {
        let Some(end) = &self.end else { return 0 };
        let mut done = 0;
        let write = async {
            while done < bytes.len() {
                match end.write(&bytes[done..]).await {
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
            () = write => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
        if let Some(last) = bytes[..done].last() {
            self.midline = *last != b'\n' && *last != b'\r';
        }
        done
    }
}
