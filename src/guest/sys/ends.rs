//! The agent's ends of what a program reads and writes: of pipes, or of one terminal.

use std::{io, sync::Arc};

use super::this_system::{InputPipe, OutputPipe, OwnedEnd, Pty};

/// Where a program's output comes from.
#[derive(Debug)]
pub(crate) enum OutputEnd {
    /// A pipe of one stream.
    Pipe(OutputPipe),
    /// A terminal, where all streams are one.
    Terminal(Arc<Pty>),
}

impl OutputEnd {
    /// Waits for bytes and reads them; 0 is the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(pty) => pty.read(buffer).await,
        }
    }

    /// Bytes that lie in it at this moment, at most; of a terminal, that are still to come after its program's end.
    pub(crate) fn waiting(&mut self) -> u64 {
        match self {
            Self::Pipe(pipe) => pipe.waiting(),
            Self::Terminal(_) => Pty::MOST_LEFT,
        }
    }

    /// Reads from what lies in it; `None` where nothing does, 0 at the end.
    pub(crate) async fn read_waiting(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Pipe(pipe) => {
                if pipe.waiting() == 0 {
                    return Ok(None);
                }
                pipe.read(buffer).await.map(Some)
            }
            Self::Terminal(pty) => pty.read_last(buffer).await,
        }
    }

    /// The end itself, for somebody else to read from.
    pub(crate) fn into_owned(self) -> io::Result<OwnedEnd> {
        match self {
            Self::Pipe(pipe) => pipe.into_owned(),
            Self::Terminal(pty) => pty.another_handle(),
        }
    }
}

/// Where a program's input goes.
#[derive(Debug)]
pub(crate) enum InputEnd {
    /// A pipe; dropped, the program sees the end.
    Pipe(InputPipe),
    /// A terminal, which is not closed by this being dropped.
    Terminal(Arc<Pty>),
}

impl InputEnd {
    /// Writes some of the bytes, once there is room for any.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.write(bytes).await,
            Self::Terminal(pty) => pty.write(bytes).await,
        }
    }

    /// What has to be written for the program to see the end of its input; `midline`: a line has begun.
    pub(crate) fn farewell(&self, midline: bool) -> Vec<u8> {
        match self {
            Self::Pipe(_) => Vec::new(),
            Self::Terminal(pty) => pty.farewell(midline),
        }
    }

    /// The terminal, if it is one.
    pub(crate) fn terminal(&self) -> Option<Arc<Pty>> {
        match self {
            Self::Pipe(_) => None,
            Self::Terminal(pty) => Some(Arc::clone(pty)),
        }
    }
}
