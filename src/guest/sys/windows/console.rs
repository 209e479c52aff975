//! A pseudo console: the terminal that programs find, with pipes for its keyboard and its screen.
//!
//! UNSAFETY: each call gets pointers to values that live for as long as it runs; the console is closed once.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, OwnedHandle},
    sync::{Mutex, MutexGuard, PoisonError},
};

use windows_sys::Win32::System::Console::{COORD, ClosePseudoConsole, CreatePseudoConsole, HPCON, ResizePseudoConsole};

/// Most lines or columns: what a terminal has at most, and what the console host keeps in memory.
const MOST: u16 = 1000;

/// A pseudo console, closed when it is dropped.
#[derive(Debug)]
pub(super) struct PseudoConsole(Mutex<Option<HPCON>>);

impl PseudoConsole {
    /// A new one that reads what is typed from one pipe and writes its screen to the other.
    pub(super) fn new(rows: u16, cols: u16, keyboard: OwnedHandle, screen: OwnedHandle) -> io::Result<Self> {
        let mut console: HPCON = 0;
        // SAFETY: both handles are open, and `console` lives as long as the call, which keeps handles of its own.
        let result = unsafe {
            CreatePseudoConsole(size(rows, cols), keyboard.as_raw_handle(), screen.as_raw_handle(), 0, &raw mut console)
        };
        checked(result)?;
        Ok(Self(Mutex::new(Some(console))))
    }

    /// Gives it another size.
    pub(super) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        let console = self.locked();
        let Some(console) = *console else { return Err(closed()) };
        // SAFETY: it is open for as long as the lock is held.
        checked(unsafe { ResizePseudoConsole(console, size(rows, cols)) })
    }

    /// Has something done with it while it is open.
    pub(super) fn with<T>(&self, action: impl FnOnce(HPCON) -> io::Result<T>) -> io::Result<T> {
        let console = self.locked();
        action((*console).ok_or_else(closed)?)
    }

    /// Closes it: who is still in it is told to end, what is on its way to the screen comes, and then its end.
    ///
    /// On a thread of its own, since before Windows 11 24H2 closing waits until somebody has read all of that.
    pub(super) fn close(&self) {
        let Some(console) = self.locked().take() else { return };
        // SAFETY: it has been taken out, so nobody else uses it or closes it again.
        let closing = move || unsafe { ClosePseudoConsole(console) };
        if let Err(error) = std::thread::Builder::new().name("console-close".into()).spawn(closing) {
            tracing::error!(%error, "a pseudo console stays open: there is no thread to close it on");
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<HPCON>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PseudoConsole {
    fn drop(&mut self) {
        self.close();
    }
}

fn size(rows: u16, cols: u16) -> COORD {
    let taken = |count: u16| i16::try_from(count.clamp(1, MOST)).unwrap_or(1);
    COORD { X: taken(cols), Y: taken(rows) }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the terminal's program has ended")
}

/// An error code of the new kind in the form of the old, where it is one.
fn checked(result: windows_sys::core::HRESULT) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
