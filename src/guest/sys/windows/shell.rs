//! Which program interprets which kind of script.

use crate::protocol::Shell;

/// The interpreter of `shell` here: its program, and whether it is a PowerShell; an `Err` says why there is none.
pub(crate) fn interpreter(_shell: Shell) -> Result<(&'static str, bool), &'static str> {
    todo!()
}
