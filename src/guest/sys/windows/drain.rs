//! What processes that outlive their call go on writing: read, and dropped, for as long as they live.

use std::{io, os::windows::io::OwnedHandle, path::PathBuf};

/// Hands pipes to whoever drains them.
#[derive(Debug)]
pub(crate) struct Drainer {}

impl Drainer {
    /// A drainer that starts nothing yet.
    pub(crate) fn new(_program: Option<PathBuf>) -> Self {
        Self {}
    }

    /// Takes over a pipe.
    pub(crate) fn take(&self, _pipe: OwnedHandle) {
        todo!()
    }
}

/// The whole of `podlink agent drain`.
pub fn drain_loop() -> io::Result<()> {
    todo!()
}

/// The whole of `podlink agent hold`.
pub fn hold_loop(_leader: i32) {
    todo!()
}
