//! The agent's ends of a child's pipes.

use std::{io, os::windows::io::OwnedHandle, process::Stdio};

/// The agent's end of a pipe that a child writes to.
#[derive(Debug)]
pub(crate) struct OutputPipe {}

impl OutputPipe {
    /// A new pipe: the agent's end, and the child's.
    pub(crate) fn new() -> io::Result<(Self, Stdio)> {
        todo!()
    }

    /// Waits for bytes and reads them; 0 is the end.
    pub(crate) async fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        todo!()
    }

    /// Bytes that lie in it at this moment.
    pub(crate) fn waiting(&self) -> u64 {
        todo!()
    }

    /// The end itself, for somebody else to read from.
    pub(crate) fn into_owned(self) -> io::Result<OwnedHandle> {
        todo!()
    }
}

/// The agent's end of a pipe that a child reads from; dropped, the child sees the end.
#[derive(Debug)]
pub(crate) struct InputPipe {}

impl InputPipe {
    /// A new pipe: the agent's end, and the child's.
    pub(crate) fn new() -> io::Result<(Self, Stdio)> {
        todo!()
    }

    /// Writes some of the bytes, once there is room for any.
    pub(crate) async fn write(&self, _bytes: &[u8]) -> io::Result<usize> {
        todo!()
    }
}
