//! What comes on stdin, piece by piece, read only when it is asked for.

use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd,
    sync::mpsc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::mpsc as channel;

use crate::host::{Error, ErrorKind, Result};

/// Most bytes that are read at once, hence the most that is read and not passed on.
const PIECE: usize = 32 * 1024;

/// Whether a person may be typing on stdin.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether something lies in stdin that nobody has read.
pub fn stdin_has_more() -> bool {
    rustix::io::ioctl_fionread(io::stdin()).is_ok_and(|count| count > 0)
}

/// A reader of stdin.
///
/// It has a thread of its own, since a read of stdin can last for ever. The thread reads one piece for each that was
/// asked for, and nothing before the first.
#[derive(Debug)]
pub struct Input {
    wanted: mpsc::SyncSender<()>,
    pieces: channel::Receiver<io::Result<Vec<u8>>>,
    /// A piece has been asked for and has not come.
    asked: bool,
}

impl Input {
    /// A reader of this process' stdin.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn stdin() -> Result<Self> {
        Self::of(io::stdin())
    }

    fn of(source: impl AsFd + Send + 'static) -> Result<Self> {
        let (wanted, asks) = mpsc::sync_channel(1);
        let (answers, pieces) = channel::channel(1);
        let reading = move || {
            while asks.recv().is_ok() {
                if answers.blocking_send(read(&source)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("stdin".to_owned()).spawn(reading).map_err(|error| {
            Error::new(ErrorKind::Internal, "could not start a thread that reads stdin").with_source(error)
        })?;
        Ok(Self { wanted, pieces, asked: false })
    }

    /// The next piece; an empty one at the end.
    ///
    /// Nothing is lost where this is dropped before it is done: the piece is the next call's.
    ///
    /// # Errors
    /// When stdin cannot be read.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        if !self.asked {
            // the thread is gone only where it panicked; the receiver says so
            let _ = self.wanted.try_send(());
            self.asked = true;
        }
        let piece = self.pieces.recv().await;
        self.asked = false;
        let failed = |error: io::Error| Error::new(ErrorKind::File, "stdin could not be read").with_source(error);
        piece.unwrap_or_else(|| Err(io::Error::other("its reader is gone"))).map_err(failed)
    }
}

fn read(source: &impl AsFd) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE];
    loop {
        match rustix::io::read(source, &mut piece) {
            Ok(count) => {
                piece.truncate(count);
                return Ok(piece);
            }
            Err(Errno::INTR) => {}
            // whoever shares it has made it non-blocking
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(source, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            // a terminal that has been hung up
            Err(Errno::IO) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use super::*;

    #[tokio::test]
    async fn nothing_is_read_that_was_not_asked_for() {
        let (reader, mut writer) = io::pipe().unwrap();
        let watched = reader.try_clone().unwrap();
        let mut input = Input::of(reader).unwrap();
        writer.write_all(b"first").unwrap();
        assert_eq!(input.next().await.unwrap(), b"first");
        writer.write_all(b"second").unwrap();
        // the thread has had its chance: it is asked nothing and reads nothing
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(rustix::io::ioctl_fionread(&watched).unwrap(), 6);
        assert_eq!(input.next().await.unwrap(), b"second");
        drop(writer);
        assert!(input.next().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_piece_that_nobody_waited_for_is_the_next_one() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = Input::of(reader).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), input.next()).await.is_err());
        writer.write_all(b"late").unwrap();
        assert_eq!(input.next().await.unwrap(), b"late");
    }

    #[tokio::test]
    async fn a_non_blocking_source_is_waited_for() {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut input = Input::of(reader).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), input.next()).await.is_err());
        writer.write_all(b"late").unwrap();
        assert_eq!(input.next().await.unwrap(), b"late");
    }
}
