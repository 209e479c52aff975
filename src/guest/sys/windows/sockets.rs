//! The listening sockets of the whole system.

use std::io;

use crate::protocol::SystemSockets;

/// All of them at this moment.
pub(in crate::guest) fn system_sockets() -> io::Result<SystemSockets> {
    todo!()
}
