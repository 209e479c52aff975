//! The terminal's size, and its changes.

use std::io;

use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::host::{Error, ErrorKind, Result};

/// How many characters a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// The size of the terminal that is looked at; none where there is none, or where it does not know.
pub fn size() -> Option<Size> {
    // what is drawn goes to stdout; where that is a file, the terminal that is typed on is the next best
    let found = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok()?;
    (found.ws_row > 0 && found.ws_col > 0).then_some(Size { rows: found.ws_row, cols: found.ws_col })
}

/// The columns of stdout where it is a terminal: what is piped on is for no width.
pub fn stdout_width() -> Option<usize> {
    let found = tcgetwinsize(io::stdout()).ok()?;
    (found.ws_col > 0).then_some(found.ws_col.into())
}

/// Tells when the terminal's size has changed.
#[derive(Debug)]
pub struct Resizes(Signal);

impl Resizes {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the signal cannot be caught.
    pub fn watch() -> Result<Self> {
        signal(SignalKind::window_change()).map(Self).map_err(|error| {
            Error::new(ErrorKind::Internal, "could not listen for changes of the terminal's size").with_source(error)
        })
    }

    /// The size after the next change.
    pub async fn next(&mut self) -> Size {
        loop {
            if self.0.recv().await.is_none() {
                // the runtime is going down
                std::future::pending::<()>().await;
            }
            if let Some(size) = size() {
                return size;
            }
        }
    }
}
