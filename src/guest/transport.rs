//! The socket under a connection, with what the HTTP library leaves open.
//!
//! - A caller that takes nothing of its answer is given up after a while.
//! - An answer that goes out before the caller has sent its whole request would be lost to it: closing a socket with
//!   unread data in it resets the connection. So the rest is read and dropped for a while, after our side is closed.
//! - What the library refuses by itself (text that is not HTTP, headers beyond its limits) gets the protocol's form.
//!
//! Implementation note: the library's own refusal is known by its place, not by its looks. [`Phase`] tells whether an
//! answer of ours is on its way; bytes that are written while none is are the library's.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::Deadlines;

/// Most bytes that are read and dropped after an early answer.
const MAX_DROPPED: usize = 64 * 1024 * 1024;

/// Where a connection is between requests and answers; its parts are touched by one task alone.
#[derive(Debug, Default)]
pub(super) struct Phase {
    /// Requests in the service, and answers not yet wholly handed over.
    active: AtomicUsize,
    /// An answer of ours may have bytes that are not out yet.
    answering: AtomicBool,
    /// A request was answered before its body had been read.
    unread: AtomicBool,
}

/// Held from a request's arrival to the end of its answer's body.
#[derive(Debug)]
pub(super) struct Active(Arc<Phase>);

impl Phase {
    pub(super) fn enter(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::AcqRel);
        self.answering.store(true, Ordering::Release);
        Active(Arc::clone(self))
    }

    pub(super) fn left_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    fn flushed(&self) {
        if self.active.load(Ordering::Acquire) == 0 {
            self.answering.store(false, Ordering::Release);
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A socket with patience.
pub(super) struct Transport<R> {
    stream: TcpStream,
    phase: Arc<Phase>,
    write_stall: Duration,
    linger: Duration,
    /// Makes the answer that stands in for the library's own refusal.
    refusal: R,
    /// That answer, and what of it is still to be written.
    refusing: Option<Bytes>,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<R: Fn(&[u8]) -> Bytes + Unpin> Transport<R> {
    pub(super) fn new(stream: TcpStream, phase: Arc<Phase>, deadlines: &Deadlines, refusal: R) -> Self {
        Self {
            stream,
            phase,
            write_stall: deadlines.write_stall,
            linger: deadlines.linger,
            refusal,
            refusing: None,
            stalled: None,
            lingering: None,
        }
    }

    /// Whether these bytes are the library's own refusal, whose place ours is to take.
    fn is_refusal(&self, bytes: &[u8]) -> bool {
        self.refusing.is_some() || (!self.phase.answering.load(Ordering::Acquire) && bytes.starts_with(b"HTTP/1.1 4"))
    }

    /// Writes our refusal; when it is out, the library's counts as written.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, theirs: &[u8]) -> Poll<io::Result<usize>> {
        self.phase.left_unread();
        let mut rest = self.refusing.take().unwrap_or_else(|| (self.refusal)(theirs));
        while !rest.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &rest) {
                Poll::Ready(Ok(written)) => drop(rest.split_to(written)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.refusing = Some(rest);
                    return self.poll_patience(cx);
                }
            }
        }
        Poll::Ready(Ok(theirs.len()))
    }

    /// After a write that could not go on: pending, until the caller has been given time enough.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let limit = self.write_stall;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller does not take its answer")))
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            return self.poll_patience(cx);
        }
        self.stalled = None;
        written
    }
}

impl<R: Unpin> AsyncRead for Transport<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<R: Fn(&[u8]) -> Bytes + Unpin> AsyncWrite for Transport<R> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_refusal(buf) {
            return self.poll_refuse(cx, buf);
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(first) = bufs.iter().find(|buf| !buf.is_empty())
            && self.is_refusal(first)
        {
            return self.poll_refuse(cx, first);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called by the library only when all that it had has been written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.phase.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let linger = this.linger;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.phase.unread.load(Ordering::Acquire) {
                return Poll::Ready(Ok(()));
            }
        }
        let (end, dropped) = this.lingering.get_or_insert_with(|| (Box::pin(sleep(linger)), 0));
        let mut scratch = [0; 16 * 1024];
        while *dropped < MAX_DROPPED && end.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => *dropped += buf.filled().len(),
                _ => break, // the caller is done, or gone
            }
        }
        Poll::Ready(Ok(()))
    }
}
