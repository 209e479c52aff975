//! The processes of the whole system.

use std::io;

use crate::protocol::SystemProcesses;

/// All of them at this moment.
pub(in crate::guest) fn system_processes() -> io::Result<SystemProcesses> {
    todo!()
}
