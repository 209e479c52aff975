//! Options of sockets.

use std::{io, os::windows::io::AsSocket};

use tokio::net::{TcpSocket, TcpStream};

/// Most connections that are ever served at one time.
pub(in crate::guest) const fn connection_limit() -> usize {
    4096
}

/// Nobody else may take the port while it is ours.
pub(in crate::guest) fn set_reuse_address(_socket: &TcpSocket) -> io::Result<()> {
    todo!()
}

/// Whether the socket leaves IPv4 to others.
pub(in crate::guest) fn set_v6_only(_socket: &TcpSocket, _only: bool) -> io::Result<()> {
    todo!()
}

/// A caller that vanished without a word is noticed within a minute.
pub(in crate::guest) fn keep_alive(_socket: impl AsSocket) -> io::Result<()> {
    todo!()
}

/// A second handle to a connection, which stays open when the first is closed.
pub(in crate::guest) fn another_handle(_stream: &TcpStream) -> io::Result<std::net::TcpStream> {
    todo!()
}
