//! One end of a pipe, read or written without blocking: one operation at a time, which outlives whoever waits for it.
//!
//! UNSAFETY: the system writes into an operation's block and buffer until it has ended. Both lie on the heap and are
//! reached by pointer alone; they are freed after the end of the operation, which a drop asks and waits for.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    io,
    os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle},
    ptr,
};

use windows_sys::Win32::{
    Foundation::{ERROR_BROKEN_PIPE, ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_NOT_FOUND, ERROR_OPERATION_ABORTED},
    Storage::FileSystem::{ReadFile, WriteFile},
    System::{
        IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED},
        Pipes::PeekNamedPipe,
    },
};

use super::{handle::worked, wait::HandleWait};

/// Bytes that are read or written at once.
pub(super) const AT_ONCE: usize = 64 * 1024;

/// An end of a pipe that was opened for overlapped operations.
#[derive(Debug)]
pub(super) struct Overlapped {
    end: OwnedHandle,
    event: HandleWait,
    /// Where the system notes how the operation goes.
    block: *mut OVERLAPPED,
    /// Where it puts or finds the bytes.
    buffer: *mut [u8; AT_ONCE],
    pending: bool,
}

// SAFETY: the pointers are this value's own, and what they point to is not bound to a thread.
unsafe impl Send for Overlapped {}
// SAFETY: nothing is done through a shared reference but asking the handle.
unsafe impl Sync for Overlapped {}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// So many bytes have come or gone.
    Bytes(usize),
    /// The other end is closed.
    End,
    /// Nothing has come of it, and it may be begun again.
    Again,
}

impl Overlapped {
    /// Of an end that nothing is done with.
    pub(super) fn new(end: OwnedHandle) -> io::Result<Self> {
        let event = HandleWait::event()?;
        let block = Box::into_raw(Box::new(OVERLAPPED::default()));
        let buffer = Box::into_raw(Box::new([0; AT_ONCE]));
        Ok(Self { end, event, block, buffer, pending: false })
    }

    /// The end itself.
    pub(super) fn end(&self) -> BorrowedHandle<'_> {
        self.end.as_handle()
    }

    /// Whether an operation has been begun whose end nobody has taken notice of.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending
    }

    /// Begins to read, unless that is being done. A pipe whose other end is closed says so at the end of it.
    pub(super) fn begin_read(&mut self) -> io::Result<Option<Done>> {
        if self.pending {
            return Ok(None);
        }
        let begun = self.begin(|end, block, buffer| {
            // SAFETY: see the module; the length is the buffer's.
            unsafe { ReadFile(end, buffer, AT_ONCE as u32, ptr::null_mut(), block) }
        });
        begun.map(|()| None).or_else(|error| ended(error).map(Some))
    }

    /// Begins to write the first of the bytes. None may be on their way.
    pub(super) fn begin_write(&mut self, bytes: &[u8]) -> io::Result<Option<Done>> {
        if self.pending {
            return Err(io::Error::other("something is being written already"));
        }
        let count = bytes.len().min(AT_ONCE);
        // SAFETY: nothing is pending, so the buffer is this value's alone, and `count` bytes fit.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer.cast::<u8>(), count) };
        let begun = self.begin(|end, block, buffer| {
            // SAFETY: see the module; the count is at most the buffer's length.
            unsafe { WriteFile(end, buffer, u32::try_from(count).unwrap_or(0), ptr::null_mut(), block) }
        });
        begun.map(|()| None).or_else(|error| ended(error).map(Some))
    }

    fn begin(
        &mut self,
        call: impl FnOnce(*mut std::ffi::c_void, *mut OVERLAPPED, *mut u8) -> windows_sys::core::BOOL,
    ) -> io::Result<()> {
        // SAFETY: nothing is pending, so the block is this value's alone.
        unsafe { *self.block = OVERLAPPED { hEvent: self.event.handle().as_raw_handle(), ..OVERLAPPED::default() } };
        match worked(call(self.end.as_raw_handle(), self.block, self.buffer.cast())) {
            // also one that has ended at once says so by the event
            Ok(()) => {}
            Err(error) if is(&error, ERROR_IO_PENDING) => {}
            Err(error) => return Err(error),
        }
        self.pending = true;
        Ok(())
    }

    /// How the operation has ended, if it has.
    pub(super) fn ended_now(&mut self) -> io::Result<Option<Done>> {
        match self.result(false) {
            Err(error) if is(&error, ERROR_IO_INCOMPLETE) => Ok(None),
            result => {
                self.pending = false;
                result.map(Done::Bytes).or_else(ended).map(Some)
            }
        }
    }

    /// Waits for the end of the operation. Nothing is lost when nobody waits any more: it goes on.
    pub(super) async fn ends(&mut self) -> io::Result<Done> {
        loop {
            self.event.happens().await;
            if let Some(done) = self.ended_now()? {
                return Ok(done);
            }
        }
    }

    fn result(&self, wait: bool) -> io::Result<usize> {
        let mut count = 0;
        // SAFETY: the block is that of an operation on this end, and lives.
        worked(unsafe { GetOverlappedResult(self.end.as_raw_handle(), self.block, &raw mut count, i32::from(wait)) })?;
        Ok(count as usize)
    }

    /// What has been read, after an operation that read so many bytes.
    pub(super) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        if self.pending {
            return &[];
        }
        // SAFETY: nothing is pending, so nobody writes to it.
        let buffer = unsafe { &*self.buffer };
        buffer.get(range).unwrap_or_default()
    }

    /// Bytes that lie in the pipe; none where its other end is closed and all has been read.
    pub(super) fn in_pipe(&self) -> u64 {
        let mut count = 0;
        // SAFETY: the handle is open, and `count` lives as long as the call.
        let peeked = unsafe {
            PeekNamedPipe(
                self.end.as_raw_handle(),
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                &raw mut count,
                ptr::null_mut(),
            )
        };
        if peeked == 0 { 0 } else { count.into() }
    }

    /// Ends the operation, with or without success.
    fn cancel(&mut self) {
        if !self.pending {
            return;
        }
        // SAFETY: the block is that of an operation on this end, and lives.
        let cancelled = worked(unsafe { CancelIoEx(self.end.as_raw_handle(), self.block) });
        if let Err(error) = cancelled
            && !is(&error, ERROR_NOT_FOUND)
        {
            tracing::debug!(%error, "an operation on a pipe is not cancelled but waited for");
        }
        drop(self.result(true));
        self.pending = false;
    }

    /// The end itself; what had been read of it is lost.
    pub(super) fn into_end(mut self) -> io::Result<OwnedHandle> {
        self.cancel();
        self.end.try_clone()
    }
}

impl Drop for Overlapped {
    fn drop(&mut self) {
        self.cancel();
        // SAFETY: both were made by `Box::into_raw`, and the system is done with them.
        unsafe {
            drop(Box::from_raw(self.block));
            drop(Box::from_raw(self.buffer));
        }
    }
}

/// What an error says that is none.
fn ended(error: io::Error) -> io::Result<Done> {
    match error {
        error if is(&error, ERROR_BROKEN_PIPE) => Ok(Done::End),
        // the thread that had begun it has ended
        error if is(&error, ERROR_OPERATION_ABORTED) => Ok(Done::Again),
        error => Err(error),
    }
}

fn is(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}
