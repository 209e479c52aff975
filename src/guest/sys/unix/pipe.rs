//! The agent's ends of a child's pipes.

use std::{io, os::fd::OwnedFd, process::Stdio};

use tokio::net::unix::pipe::{Receiver, Sender};

/// The agent's end of a pipe that a child writes to.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    receiver: Receiver,
}

impl OutputPipe {
    /// A new pipe: the agent's end, and the child's.
    ///
    /// Both close on exec; the child's becomes its stdout or stderr by the spawn itself, so that no other child that
    /// is spawned at the same moment keeps it open.
    pub(crate) fn new() -> io::Result<(Self, Stdio)> {
        let (reader, writer) = std::io::pipe()?;
        let reader = OwnedFd::from(reader);
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self { receiver: Receiver::from_owned_fd(reader)? }, Stdio::from(OwnedFd::from(writer))))
    }

    /// Waits for bytes and reads them; 0 is the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use tokio::io::AsyncReadExt as _;
        self.receiver.read(buffer).await
    }

    /// What lies in the pipe at this moment, in bytes.
    pub(crate) fn waiting(&self) -> u64 {
        use std::os::fd::AsFd as _;
        rustix::io::ioctl_fionread(self.receiver.as_fd()).unwrap_or(0)
    }

    /// The end itself, for somebody else to read from.
    pub(crate) fn into_owned(self) -> io::Result<OwnedFd> {
        self.receiver.into_blocking_fd()
    }
}

/// The agent's end of a pipe that a child reads from; dropped, the child sees the end.
#[derive(Debug)]
pub(crate) struct InputPipe {
    sender: Sender,
}

impl InputPipe {
    /// A new pipe: the agent's end, and the child's.
    pub(crate) fn new() -> io::Result<(Self, Stdio)> {
        let (reader, writer) = std::io::pipe()?;
        let writer = OwnedFd::from(writer);
        rustix::io::ioctl_fionbio(&writer, true)?;
        Ok((Self { sender: Sender::from_owned_fd(writer)? }, Stdio::from(OwnedFd::from(reader))))
    }

    /// Writes some of the bytes, once there is room for any.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.sender.writable().await?;
            match self.sender.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }
}
