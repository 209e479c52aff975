//! A terminal for a program: a pseudo console.

use std::{io, os::windows::io::OwnedHandle};

use tokio::process::Command;

/// The agent's end of a terminal.
#[derive(Debug)]
pub(crate) struct Pty {}

/// The program's end of a terminal that no program has yet.
#[derive(Debug)]
pub(crate) struct PtySlave {}

impl Pty {
    /// A new terminal of this size: the agent's end, and the child's.
    pub(crate) fn open(_rows: u16, _cols: u16) -> io::Result<(Self, PtySlave)> {
        todo!()
    }

    /// Gives it another size.
    pub(crate) fn resize(&self, _rows: u16, _cols: u16) -> io::Result<()> {
        todo!()
    }

    /// Waits for output and reads it; 0 is the end.
    pub(crate) async fn read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        todo!()
    }

    /// Reads what is there at this moment: `None` where nothing is, 0 at the end.
    pub(crate) fn read_now(&self, _buffer: &mut [u8]) -> io::Result<Option<usize>> {
        todo!()
    }

    /// Waits until it takes more, and types some or all of these bytes.
    pub(crate) async fn write(&self, _bytes: &[u8]) -> io::Result<usize> {
        todo!()
    }

    /// The character that a program takes for the end of its input.
    pub(crate) fn end_of_input(&self) -> Option<u8> {
        todo!()
    }

    /// The end itself, for somebody else to read from.
    pub(crate) fn another_handle(&self) -> io::Result<OwnedHandle> {
        todo!()
    }
}

impl PtySlave {
    /// Makes it the command's terminal.
    pub(crate) fn attach_to(self, _command: &mut Command) -> io::Result<()> {
        todo!()
    }
}
