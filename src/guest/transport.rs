//! The socket under a connection, with what the HTTP library leaves open.
//!
//! - A caller that takes nothing of its answer is given up after a while; not so where the answer is a stream whose
//!   reader may stand still, nor on a connection that was upgraded.
//! - An answer that goes out before the caller has sent its whole request would be lost to it: closing a socket with
//!   unread data in it resets the connection. So the rest is read and dropped for a while, after our side is closed.
//! - What the library refuses by itself (text that is not HTTP, headers beyond its limits) gets the protocol's form.
//!
//! Implementation note: the library's own refusal is known by its place, not by its looks. [`Phase`] tells whether an
//! answer of ours is on its way; bytes that are written while none is are the library's. After an upgrade there is
//! no library left to refuse anything.

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
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep, timeout},
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
    /// The answer on its way is one that the caller may leave standing.
    patient: AtomicBool,
    /// HTTP is over: the bytes are those of another protocol.
    upgraded: AtomicBool,
}

/// Held from a request's arrival to the end of its answer's body.
#[derive(Debug)]
pub(super) struct Active(Arc<Phase>);

impl Phase {
    pub(super) fn enter(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::AcqRel);
        self.answering.store(true, Ordering::Release);
        self.patient.store(false, Ordering::Release);
        Active(Arc::clone(self))
    }

    /// The answer to the request is a stream that its reader may leave standing.
    pub(super) fn answered_in_its_time(&self) {
        self.patient.store(true, Ordering::Release);
    }

    /// The answer to the request is the last of HTTP.
    pub(super) fn upgraded(&self) {
        self.upgraded.store(true, Ordering::Release);
    }

    fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Acquire)
    }

    fn is_patient(&self) -> bool {
        self.patient.load(Ordering::Acquire) || self.is_upgraded()
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

/// A socket with patience. It keeps its place among the connections, also as an upgraded one.
pub(super) struct Transport<R> {
    stream: TcpStream,
    place: Option<OwnedSemaphorePermit>,
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
    pub(super) fn new(
        stream: TcpStream,
        place: OwnedSemaphorePermit,
        phase: Arc<Phase>,
        deadlines: &Deadlines,
        refusal: R,
    ) -> Self {
        Self {
            stream,
            place: Some(place),
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
        let ours = self.phase.answering.load(Ordering::Acquire) || self.phase.is_upgraded();
        self.refusing.is_some() || (!ours && bytes.starts_with(b"HTTP/1.1 4"))
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
    ///
    /// Where it may take for ever, a caller that is dead is found by the socket itself.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.phase.is_patient() {
            self.stalled = None;
            return Poll::Pending;
        }
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

/// An upgraded connection ends by being dropped, and nobody shuts it down before: what the other side still sends
/// would reset it, and our last words would be lost.
impl<R> Drop for Transport<R> {
    fn drop(&mut self) {
        if !self.phase.is_upgraded() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // the stream itself cannot be moved out of here; another handle to the socket outlives it
        let Ok(socket) = super::sys::another_handle(&self.stream) else { return };
        let (place, limit) = (self.place.take(), self.linger);
        runtime.spawn(async move {
            drop(timeout(limit, linger(socket)).await);
            drop(place);
        });
    }
}

/// Ends our side, and reads and drops what still comes.
async fn linger(socket: std::net::TcpStream) -> io::Result<()> {
    let mut stream = TcpStream::from_std(socket)?;
    stream.shutdown().await?;
    let mut scratch = vec![0; 16 * 1024];
    let mut dropped = 0;
    while dropped < MAX_DROPPED {
        match stream.read(&mut scratch).await? {
            0 => break,
            count => dropped += count,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, sync::Semaphore};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const OURS: &[u8] = b"HTTP/1.1 400 in our own words";
    const THEIRS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";

    /// A transport whose writes stall after 100 ms, and its caller.
    async fn pair(phase: &Arc<Phase>) -> (Transport<fn(&[u8]) -> Bytes>, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let deadlines = Deadlines { write_stall: Duration::from_millis(100), ..Deadlines::DEFAULT };
        let refusal: fn(&[u8]) -> Bytes = |_| Bytes::from_static(OURS);
        (Transport::new(stream, place, Arc::clone(phase), &deadlines, refusal), caller)
    }

    async fn said_to(mut caller: TcpStream) -> Vec<u8> {
        let mut said = Vec::new();
        timeout(PATIENCE, caller.read_to_end(&mut said)).await.expect("an end").unwrap();
        said
    }

    #[tokio::test]
    async fn a_refusal_is_the_librarys_only_where_nothing_of_ours_is_on_its_way() {
        for (what, wanted) in [("nothing", OURS), ("an answer", THEIRS), ("an upgrade", THEIRS)] {
            let phase = Arc::new(Phase::default());
            let _active = (what == "an answer").then(|| phase.enter());
            if what == "an upgrade" {
                drop(phase.enter());
                phase.upgraded();
            }
            let (mut transport, caller) = pair(&phase).await;
            if what == "an upgrade" {
                transport.flush().await.unwrap(); // the head of the upgrade is out
            }
            transport.write_all(THEIRS).await.unwrap();
            drop(transport);
            assert_eq!(said_to(caller).await, wanted, "{what}");
        }
    }

    /// More than the two sockets hold between them.
    const MUCH: usize = 32 * 1024 * 1024;

    #[tokio::test]
    async fn an_answer_that_is_not_taken_ends_the_connection() {
        let phase = Arc::new(Phase::default());
        let (mut transport, _caller) = pair(&phase).await;
        let _before = phase.enter();
        phase.answered_in_its_time();
        let _active = phase.enter(); // patience was the last answer's
        let written = timeout(PATIENCE, transport.write_all(&vec![0; MUCH])).await.expect("it is given up");
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_stream_and_an_upgraded_connection_may_stand_still() {
        for upgraded in [false, true] {
            let phase = Arc::new(Phase::default());
            let (mut transport, mut caller) = pair(&phase).await;
            let _active = phase.enter();
            if upgraded {
                phase.upgraded();
            } else {
                phase.answered_in_its_time();
            }
            let much = vec![7; MUCH];
            let writing = tokio::spawn(async move { transport.write_all(&much).await.map(|()| transport) });
            sleep(Duration::from_millis(400)).await; // four times what others are given
            assert!(!writing.is_finished(), "it waits");
            let mut taken = vec![0; MUCH];
            timeout(PATIENCE, caller.read_exact(&mut taken)).await.expect("it goes on").unwrap();
            assert!(taken.iter().all(|byte| *byte == 7));
            writing.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn the_last_words_of_an_upgraded_connection_reach_a_peer_that_still_sends() {
        let phase = Arc::new(Phase::default());
        phase.upgraded();
        let (mut transport, mut caller) = pair(&phase).await;
        caller.write_all(&vec![1; 64 * 1024]).await.unwrap(); // lies in the socket, unread
        transport.write_all(b"farewell").await.unwrap();
        drop(transport);
        sleep(Duration::from_millis(50)).await; // a reset would be there by now
        caller.write_all(&vec![1; 64 * 1024]).await.unwrap();
        assert_eq!(said_to(caller).await, b"farewell");
    }
}
