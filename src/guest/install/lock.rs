//! One installation at a time.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
};

use super::{super::sys, places};

/// Held while steps are taken; dropping it, or the end of the process however it comes, lets go of it.
#[derive(Debug)]
pub(super) struct Lock {
    _held: File,
}

impl Lock {
    /// Takes it; `None` while another process works.
    pub(super) fn take(state: &Path) -> io::Result<Option<Self>> {
        let file = sys::open_private_append(&places::lock_file(state))?;
        match sys::try_lock(&file) {
            Ok(()) => Ok(Some(Self { _held: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
