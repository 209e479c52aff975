//! A screen that is drawn over and over, and is as it was before when it is closed.

use std::io;

use super::{Output, OutputStream};
use crate::host::{Error, ErrorKind, Result};

/// The terminal's other screen, without a cursor.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal's other screen, for as long as this lives.
#[derive(Debug)]
pub struct Screen {
    output: Output,
    is_open: bool,
}

impl Screen {
    /// Goes over to it with the first [`Screen::draw`].
    ///
    /// # Errors
    /// When no thread can be had for the output.
    pub fn open() -> Result<Self> {
        Ok(Self { output: Output::new()?, is_open: false })
    }

    /// Draws these lines, which have to fit, in place of what was there.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub async fn draw(&mut self, lines: &[String]) -> Result<()> {
        // each line is cleared behind its end: to clear all first would flicker
        let text: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        let open = if self.is_open { "" } else { OPEN };
        self.is_open = true;
        let frame = format!("{open}\x1b[H{}\x1b[J", text.join("\r\n"));
        self.output.write(OutputStream::Stdout, frame.as_bytes()).await.map_err(|error: io::Error| {
            Error::new(ErrorKind::File, "the terminal cannot be written to").with_source(error)
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_open {
            self.output.write_last(OutputStream::Stdout, CLOSE.as_bytes());
        }
    }
}
