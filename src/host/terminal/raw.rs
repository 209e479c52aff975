//! Raw mode: every key goes to the program in the guest, none is acted on here.
//!
//! The attributes from before are kept in one place of the process, so that a guard, a panic and a signal's handling
//! all can put them back, whichever comes first; after that there is nothing left to restore.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, Once, PoisonError},
};

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use crate::host::{Error, ErrorKind, Result};

/// The terminal that is in raw mode, and how it was before.
static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

#[derive(Debug)]
struct Saved {
    terminal: OwnedFd,
    before: Termios,
}

/// The terminal on stdin is in raw mode for as long as this lives.
#[derive(Debug)]
#[must_use = "dropped, it ends raw mode"]
pub struct RawMode {
    terminal: OwnedFd,
}

impl RawMode {
    /// Puts the terminal on stdin into raw mode; none where stdin is no terminal.
    ///
    /// Dropping it, a panic of any thread, and [`RawMode::restore`] put back what was before.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter() -> Result<Option<Self>> {
        if !isatty(io::stdin()) {
            return Ok(None);
        }
        let entered = io::stdin().as_fd().try_clone_to_owned().and_then(Self::enter_on);
        entered
            .map(Some)
            .map_err(|error| Error::new(ErrorKind::File, "the terminal cannot be put into raw mode").with_source(error))
    }

    fn enter_on(terminal: OwnedFd) -> io::Result<Self> {
        restore_on_panic();
        let before = tcgetattr(&terminal)?;
        let guard = Self { terminal: terminal.try_clone()? };
        // kept before it is changed: no instant at which a panic finds nothing to restore
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Saved { terminal, before });
        guard.apply()?;
        Ok(guard)
    }

    /// Raw mode once more, after another program has had the terminal: a shell that stopped this one and let it go on.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter_again(&self) -> Result<()> {
        self.apply().map_err(|error| {
            Error::new(ErrorKind::File, "the terminal cannot be put back into raw mode").with_source(error)
        })
    }

    fn apply(&self) -> io::Result<()> {
        let mut attributes = tcgetattr(&self.terminal)?;
        attributes.make_raw();
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &attributes)?)
    }

    /// Puts back what was before; nothing where it has been put back.
    pub fn restore() {
        // a panic inside this very lock must not hang
        let Ok(mut saved) = SAVED.try_lock() else { return };
        if let Some(Saved { terminal, before }) = saved.take() {
            // at once and not after what is still to be written: a stopped terminal would never let it come
            let _ = tcsetattr(terminal, OptionalActions::Now, &before);
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        Self::restore();
    }
}

/// A panic's message is to be read on a terminal that is as it was.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            RawMode::restore();
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use rustix::{
        pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
        termios::LocalModes,
    };

    use super::*;

    /// One test: the place that they are kept in is the process'.
    #[test]
    fn a_guard_and_a_panic_both_restore_it() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let is_cooked = || tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ISIG);
        assert!(is_cooked());
        let guard = RawMode::enter_on(terminal.try_clone().unwrap()).unwrap();
        assert!(!is_cooked());
        guard.enter_again().unwrap();
        drop(guard);
        assert!(is_cooked());

        let guard = RawMode::enter_on(terminal.try_clone().unwrap()).unwrap();
        assert!(!is_cooked());
        let panicked = std::thread::spawn(|| panic!("a panic of another thread, meant by this test")).join();
        assert!(panicked.is_err() && is_cooked());
        // what is restored is not restored once more: it may be another program's by now
        let mut attributes = tcgetattr(&terminal).unwrap();
        attributes.local_modes -= LocalModes::ISIG;
        tcsetattr(&terminal, OptionalActions::Now, &attributes).unwrap();
        drop(guard);
        assert!(!is_cooked());
    }
}
