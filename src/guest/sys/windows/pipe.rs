//! The agent's ends of a child's pipes.
//!
//! Implementation note: anonymous pipes cannot be waited for, so these are named ones, with names that nobody can guess
//! and that are taken as soon as they are there. The child's end is an ordinary one, as programs expect it.
//!
//! UNSAFETY: each call gets pointers to values that live for as long as it runs.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{fs::File, io, ops::Range, os::windows::io::OwnedHandle, ptr};

use rand::TryRng as _;
use tokio::sync::Mutex;
use windows_sys::Win32::{
    Foundation::{GENERIC_READ, GENERIC_WRITE},
    Storage::FileSystem::{
        CreateFileW, FILE_ATTRIBUTE_NORMAL, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
        FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_INBOUND, PIPE_ACCESS_OUTBOUND,
    },
    System::Pipes::{CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_WAIT},
};

use super::{
    handle::{owned, wide},
    overlapped::{AT_ONCE, Done, Overlapped},
};

/// Bytes that a pipe holds before its writer waits.
const HOLDS: u32 = 64 * 1024;

/// Names that are tried; a second one is needed only where somebody else has opened the first pipe before us.
const NAMES: usize = 4;

/// What becomes one of a program's standard streams.
#[derive(Debug)]
pub(crate) struct ChildEnd(Option<OwnedHandle>);

impl ChildEnd {
    /// Nothing to read, and whatever is written is dropped.
    pub(crate) const fn null() -> Self {
        Self(None)
    }

    /// The handle itself.
    pub(super) fn into_handle(self) -> io::Result<OwnedHandle> {
        match self.0 {
            Some(handle) => Ok(handle),
            None => Ok(fs_err::OpenOptions::new().read(true).write(true).open("NUL")?.into_parts().0.into()),
        }
    }
}

impl From<File> for ChildEnd {
    fn from(file: File) -> Self {
        Self(Some(file.into()))
    }
}

impl From<OwnedHandle> for ChildEnd {
    fn from(handle: OwnedHandle) -> Self {
        Self(Some(handle))
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToAgent,
    ToChild,
}

/// The agent's end, and the child's.
fn pair(way: Way) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let mut refused = io::Error::other("no name for a pipe");
    for _ in 0..NAMES {
        let mut random = [0; 16];
        rand::rngs::SysRng.try_fill_bytes(&mut random).map_err(io::Error::other)?;
        let name = wide(format!(r"\\.\pipe\podlink-{}-{}", std::process::id(), hex::encode(random)));
        match pair_named(way, &name) {
            Ok(pair) => return Ok(pair),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn pair_named(way: Way, name: &[u16]) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let (ours, theirs) = match way {
        Way::ToAgent => (PIPE_ACCESS_INBOUND, GENERIC_WRITE | FILE_READ_ATTRIBUTES),
        Way::ToChild => (PIPE_ACCESS_OUTBOUND, GENERIC_READ | FILE_WRITE_ATTRIBUTES),
    };
    // SAFETY: the name ends in a NUL; no other pointer is given; the handle is new.
    let agents = unsafe {
        owned(CreateNamedPipeW(
            name.as_ptr(),
            ours | FILE_FLAG_FIRST_PIPE_INSTANCE | FILE_FLAG_OVERLAPPED,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            HOLDS,
            HOLDS,
            0,
            ptr::null(),
        ))
    }?;
    // SAFETY: as above. Nobody shares it: should somebody have been faster, this fails.
    let childs = unsafe {
        owned(CreateFileW(name.as_ptr(), theirs, 0, ptr::null(), OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, ptr::null_mut()))
    }?;
    Ok((agents, childs))
}

/// The agent's end of a pipe that a child writes to.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    pipe: Overlapped,
    /// What has been read and not been taken.
    left: Range<usize>,
    ended: bool,
}

impl OutputPipe {
    /// A new pipe: the agent's end, and the child's.
    pub(crate) fn new() -> io::Result<(Self, ChildEnd)> {
        let (agents, childs) = Self::with_end()?;
        Ok((agents, childs.into()))
    }

    /// The same, with the child's end as a handle.
    pub(super) fn with_end() -> io::Result<(Self, OwnedHandle)> {
        let (agents, childs) = pair(Way::ToAgent)?;
        Ok((Self::adopt(agents)?, childs))
    }

    /// Of an end that another process, or another value, has read before.
    pub(super) fn adopt(end: OwnedHandle) -> io::Result<Self> {
        Ok(Self { pipe: Overlapped::new(end)?, left: 0..0, ended: false })
    }

    /// Waits for bytes and reads them; 0 is the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left.is_empty() && !self.ended {
            let done = match self.pipe.begin_read()? {
                Some(done) => done,
                None => self.pipe.ends().await?,
            };
            self.note(done);
        }
        Ok(self.take(buffer))
    }

    /// Bytes that lie in it at this moment.
    pub(crate) fn waiting(&mut self) -> u64 {
        if self.pipe.is_pending() {
            match self.pipe.ended_now() {
                Ok(Some(done)) => self.note(done),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a program's output cannot be read any more");
                    self.ended = true;
                }
            }
        }
        self.left.len() as u64 + self.pipe.in_pipe()
    }

    /// The end itself, for somebody else to read from.
    pub(crate) fn into_owned(self) -> io::Result<OwnedHandle> {
        self.pipe.into_end()
    }

    /// Another handle to the end, for somebody else to read from when this value is gone.
    pub(super) fn another_handle(&self) -> io::Result<OwnedHandle> {
        self.pipe.end().try_clone_to_owned()
    }

    fn note(&mut self, done: Done) {
        match done {
            // none are what a program has written that wrote nothing: no end
            Done::Bytes(count) => self.left = 0..count,
            Done::End => self.ended = true,
            Done::Again => {}
        }
    }

    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.left.len().min(buffer.len());
        let taken = self.left.start..self.left.start + count;
        buffer[..count].copy_from_slice(self.pipe.bytes(taken));
        self.left.start += count;
        count
    }
}

/// The agent's end of a pipe that a child reads from; dropped, the child sees the end.
#[derive(Debug)]
pub(crate) struct InputPipe {
    pipe: Mutex<Overlapped>,
}

impl InputPipe {
    /// A new pipe: the agent's end, and the child's.
    pub(crate) fn new() -> io::Result<(Self, ChildEnd)> {
        let (agents, childs) = Self::with_end()?;
        Ok((agents, childs.into()))
    }

    /// The same, with the child's end as a handle.
    pub(super) fn with_end() -> io::Result<(Self, OwnedHandle)> {
        let (agents, childs) = pair(Way::ToChild)?;
        Ok((Self { pipe: Mutex::new(Overlapped::new(agents)?) }, childs))
    }

    /// Writes some of the bytes, once there is room for them. Dropped before it is ready, they may still be written.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        /// Small enough to be told apart how far a program has read; large enough to be fast.
        const PIECE: usize = 16 * 1024;
        const _: () = assert!(PIECE <= AT_ONCE, "it is written at once");
        let mut pipe = self.pipe.lock().await;
        if pipe.is_pending() {
            // of a writer that has given up
            written(pipe.ends().await?)?;
        }
        loop {
            let done = match pipe.begin_write(&bytes[..bytes.len().min(PIECE)])? {
                Some(done) => done,
                None => pipe.ends().await?,
            };
            if let Some(count) = written(done)? {
                return Ok(count);
            }
        }
    }
}

fn written(done: Done) -> io::Result<Option<usize>> {
    match done {
        Done::Bytes(count) => Ok(Some(count)),
        Done::End => Err(io::ErrorKind::BrokenPipe.into()),
        Done::Again => Ok(None),
    }
}
