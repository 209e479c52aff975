//! Options of sockets.

use std::{io, os::fd::AsFd, time::Duration};

use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream};

/// Most connections that are ever served at one time.
const MOST: usize = 4096;

/// Half the files that this process may open, for calls need some of their own; at most 4,096.
pub(in crate::guest) fn connection_limit() -> usize {
    // the agent raises its soft limit to the hard one before it serves
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    files.map_or(MOST, |files| usize::try_from(files / 2).unwrap_or(MOST)).clamp(16, MOST)
}

/// What a port that may not be had tells about itself.
pub(in crate::guest) const FORBIDDEN_PORT: &str = ": a port below 1024 is root's; choose another with --listen";

/// A restarted agent takes its port back at once, though connections of the last one linger.
pub(in crate::guest) fn set_reuse_address(socket: &TcpSocket) -> io::Result<()> {
    socket.set_reuseaddr(true)
}

/// Whether the socket leaves IPv4 to others.
pub(in crate::guest) fn set_v6_only(socket: &TcpSocket, only: bool) -> io::Result<()> {
    Ok(sockopt::set_ipv6_v6only(socket, only)?)
}

/// A caller that vanished without a word (its machine, a forwarder) is noticed within a minute, however long the
/// call that it waits for.
pub(in crate::guest) fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
    }
    Ok(())
}

/// A second handle to a connection, which stays open when the first is closed.
pub(in crate::guest) fn another_handle(stream: &TcpStream) -> io::Result<std::net::TcpStream> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}
