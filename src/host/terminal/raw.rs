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
pub struct RawMode(());

impl RawMode {
    /// Puts the terminal on stdin into raw mode; none where stdin is no terminal.
    ///
    /// Dropping it, a panic of any thread, and [`RawMode::restore`] put back what was before.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter() -> Result<Option<Self>> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Ok(None);
        }
        restore_on_panic();
        let failed = |error: io::Error| {
            Error::new(ErrorKind::File, "the terminal cannot be put into raw mode").with_source(error)
        };
        let before = tcgetattr(&stdin).map_err(|error| failed(error.into()))?;
        let terminal = stdin.as_fd().try_clone_to_owned().map_err(failed)?;
        // kept before it is changed: no instant at which a panic finds nothing to restore
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Saved { terminal, before: before.clone() });
        let guard = Self(());
        guard.apply(before).map_err(failed)?;
        Ok(Some(guard))
    }

    /// Raw mode once more, after another program has had the terminal: a shell that stopped this one and let it go on.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter_again(&self) -> Result<()> {
        let stdin = io::stdin();
        tcgetattr(&stdin).map_err(io::Error::from).and_then(|now| self.apply(now)).map_err(|error| {
            Error::new(ErrorKind::File, "the terminal cannot be put back into raw mode").with_source(error)
        })
    }

    #[expect(clippy::unused_self, reason = "only where a guard sees to the way back")]
    fn apply(&self, mut attributes: Termios) -> io::Result<()> {
        attributes.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &attributes)?)
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
