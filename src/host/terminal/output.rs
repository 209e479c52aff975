//! What goes to stdout and stderr, with a thread that may wait for a reader as long as it likes.

use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

use crate::host::{Error, ErrorKind, Result};

/// How long the last piece of a command may take; a terminal that is stopped is not waited for.
const LAST: Duration = Duration::from_millis(200);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Data.
    Stdout,
    /// What is said beside it.
    Stderr,
}

/// A writer of both streams, in the order in which it is given pieces.
///
/// It has a thread of its own: a reader that does not read holds up the thread, and by its unanswered call whoever
/// wanted the piece written, but nobody else. At most one piece waits.
#[derive(Debug)]
pub struct Output {
    pieces: mpsc::SyncSender<Piece>,
}

#[derive(Debug)]
struct Piece {
    stream: OutputStream,
    bytes: Vec<u8>,
    done: oneshot::Sender<io::Result<()>>,
}

/// Whether stdout is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

impl Output {
    /// A writer of this process' streams.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn new() -> Result<Self> {
        Self::of(io::stdout(), io::stderr())
    }

    fn of(stdout: impl AsFd + Send + 'static, stderr: impl AsFd + Send + 'static) -> Result<Self> {
        let (pieces, given) = mpsc::sync_channel::<Piece>(1);
        let writing = move || {
            while let Ok(piece) = given.recv() {
                let written = match piece.stream {
                    OutputStream::Stdout => write_all(&stdout, &piece.bytes),
                    OutputStream::Stderr => write_all(&stderr, &piece.bytes),
                };
                // whoever wanted it may have stopped waiting
                drop(piece.done.send(written));
            }
        };
        thread::Builder::new().name("stdout".to_owned()).spawn(writing).map_err(thread_failed)?;
        Ok(Self { pieces })
    }

    /// Writes a piece; done once the system has all of it.
    ///
    /// Where this is dropped before it is done, how much of the piece is written is not known, and nothing more may be.
    ///
    /// # Errors
    /// `BrokenPipe` where nobody reads any more; otherwise the system's own.
    pub async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let gone = || io::Error::other("the writer of the output is gone");
        let written = self.hand_over(stream, bytes).ok_or_else(gone)?;
        written.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Writes a piece before a command's end, waiting for it no longer than a moment.
    pub fn write_last(&mut self, stream: OutputStream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(mut written) = self.hand_over(stream, bytes) else { return };
        let deadline = Instant::now() + LAST;
        while matches!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives the thread a piece; none where it has one that waits already.
    fn hand_over(&self, stream: OutputStream, bytes: &[u8]) -> Option<oneshot::Receiver<io::Result<()>>> {
        let (done, written) = oneshot::channel();
        self.pieces.try_send(Piece { stream, bytes: bytes.to_vec(), done }).ok()?;
        Some(written)
    }
}

fn thread_failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, "could not start a thread for the output").with_source(error)
}

/// Past the buffer of the standard library, which looks for line ends in every byte.
fn write_all(target: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // whoever shares it has made it non-blocking
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(target, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Done once nobody reads stdout any more, also where nothing is written to it; never where it is a file.
///
/// # Errors
/// When no thread can be had.
pub async fn stdout_closed() -> Result<()> {
    closed(io::stdout()).await
}

async fn closed(target: impl AsFd + Send + 'static) -> Result<()> {
    let (tell, told) = oneshot::channel();
    let watching = move || {
        // no event is asked for: errors and hang-ups are told in any case
        let is_closed = loop {
            let mut target = [PollFd::new(&target, PollFlags::empty())];
            match poll(&mut target, None) {
                Ok(_) => break target[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
                Err(Errno::INTR) => {}
                Err(_) => break false,
            }
        };
        if is_closed {
            let _ = tell.send(());
        }
    };
    thread::Builder::new().name("stdout watch".to_owned()).spawn(watching).map_err(thread_failed)?;
    if told.await.is_err() {
        // it cannot be watched: writing will show
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_reader_that_is_stopped_stops_the_writer_and_nothing_is_lost() {
        let (mut reader, writer) = io::pipe().unwrap();
        // non-blocking, as a program that shares it may have made it
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut output = Output::of(writer, io::stderr()).unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let expected = bytes.clone();
        let mut writing = Box::pin(output.write(OutputStream::Stdout, &bytes));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut writing).await.is_err(), "the pipe is full");
        let reading = thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(got, expected);
        });
        writing.await.unwrap();
        reading.join().unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_told() {
        let (reader, writer) = io::pipe().unwrap();
        let mut watching = Box::pin(closed(writer.try_clone().unwrap()));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut watching).await.is_err());
        drop(reader);
        watching.await.unwrap();
        let mut output = Output::of(writer, io::stderr()).unwrap();
        let error = output.write(OutputStream::Stdout, b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
