//! Waiting, without a thread of its own, for what a handle stands for.
//!
//! UNSAFETY: the system's thread pool gets a pointer to the value that it is to wake; it is freed only after the pool has
//! been told to forget it and has done so.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    ffi::c_void,
    io,
    os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle},
    ptr,
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;
use windows_sys::Win32::{
    Foundation::{WAIT_FAILED, WAIT_OBJECT_0},
    System::Threading::{
        CloseThreadpoolWait, CreateEventW, CreateThreadpoolWait, PTP_CALLBACK_INSTANCE, PTP_WAIT, SetThreadpoolWait,
        WaitForSingleObject, WaitForThreadpoolWaitCallbacks,
    },
};

use super::handle::owned;

/// A handle that can be waited for: of a process, or of an event that stays set until it is unset.
#[derive(Debug)]
pub(super) struct HandleWait {
    handle: OwnedHandle,
    wait: PTP_WAIT,
    woken: Arc<Notify>,
}

impl HandleWait {
    /// Ready to wait for it.
    pub(super) fn new(handle: OwnedHandle) -> io::Result<Self> {
        let woken = Arc::new(Notify::new());
        let context = Arc::as_ptr(&woken).cast_mut().cast::<c_void>();
        // SAFETY: what `context` points to lives until the drop of this value has ended all callbacks.
        let wait = unsafe { CreateThreadpoolWait(Some(wake), context, ptr::null()) };
        if wait == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { handle, wait, woken })
    }

    /// An event, not set, ready to be waited for.
    pub(super) fn event() -> io::Result<Self> {
        // SAFETY: no pointer is given that is not null; the handle is new.
        Self::new(unsafe { owned(CreateEventW(ptr::null(), 1, 0, ptr::null())) }?)
    }

    /// The handle.
    pub(super) fn handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }

    /// Whether it has happened.
    pub(super) fn has_happened(&self) -> bool {
        has_happened(self.handle())
    }

    /// Waits until it has happened.
    pub(super) async fn happens(&self) {
        while !self.has_happened() {
            // SAFETY: the handle is open until this value is dropped, which comes after the pool has forgotten it.
            unsafe { SetThreadpoolWait(self.wait, self.handle.as_raw_handle(), ptr::null()) };
            self.woken.notified().await;
        }
    }
}

impl Drop for HandleWait {
    fn drop(&mut self) {
        // SAFETY: the wait is ours and is used by nobody after this. A callback that runs is waited for; it takes no
        // lock that could be held here.
        unsafe {
            SetThreadpoolWait(self.wait, ptr::null_mut(), ptr::null());
            WaitForThreadpoolWaitCallbacks(self.wait, 1);
            CloseThreadpoolWait(self.wait);
        }
    }
}

/// Whether what the handle stands for has happened: the process has ended, the event is set.
pub(super) fn has_happened(handle: BorrowedHandle<'_>) -> bool {
    happens_within(handle, Duration::ZERO)
}

/// Whether it happens within this time, for which the thread is blocked.
pub(super) fn happens_within(handle: BorrowedHandle<'_>, limit: Duration) -> bool {
    let limit = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1);
    // SAFETY: the handle is open for as long as it is borrowed.
    let waited = unsafe { WaitForSingleObject(handle.as_raw_handle(), limit) };
    if waited == WAIT_FAILED {
        tracing::error!(error = %io::Error::last_os_error(), "a handle cannot be waited for");
    }
    waited == WAIT_OBJECT_0
}

/// Wakes whoever waits.
unsafe extern "system" fn wake(_: PTP_CALLBACK_INSTANCE, context: *mut c_void, _: PTP_WAIT, _: u32) {
    // SAFETY: the pointer was made of an `Arc<Notify>` that outlives the wait.
    let woken = unsafe { &*context.cast::<Notify>() };
    // who does not wait at this moment looks before it waits
    woken.notify_one();
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::System::Threading::SetEvent;

    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_once_it_has_happened() {
        let wait = HandleWait::event().unwrap();
        assert!(!wait.has_happened());
        let too_early = tokio::time::timeout(Duration::from_millis(50), wait.happens()).await;
        assert!(too_early.is_err(), "nothing has happened");
        let raw = wait.handle.try_clone().unwrap();
        let setting = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            // SAFETY: the handle is open.
            unsafe { SetEvent(raw.as_raw_handle()) }
        });
        tokio::time::timeout(Duration::from_secs(20), wait.happens()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), wait.happens()).await.unwrap();
        assert_ne!(setting.join().unwrap(), 0);
    }
}
