//! Options of sockets.
//!
//! UNSAFETY: Winsock takes pointers. Each that is given here points at a value that lives across the call.
#![expect(unsafe_code, reason = "these options have no safe form")]

use std::{
    io,
    mem::size_of,
    os::windows::io::{AsRawSocket as _, AsSocket},
    ptr::null_mut,
    time::Duration,
};

use tokio::net::{TcpSocket, TcpStream};
use windows_sys::Win32::Networking::WinSock::{
    IPPROTO_IPV6, IPV6_V6ONLY, SIO_KEEPALIVE_VALS, SO_EXCLUSIVEADDRUSE, SOCKET, SOL_SOCKET, WSAGetLastError, WSAIoctl,
    setsockopt, tcp_keepalive,
};

/// Before the first question whether the other end is there.
const IDLE: Duration = Duration::from_secs(30);

/// Between two of them, of which ten make the end.
const BETWEEN: Duration = Duration::from_secs(3);

/// Most connections that are ever served at one time.
pub(in crate::guest) const fn connection_limit() -> usize {
    4096
}

/// What a port that may not be had tells about itself.
pub(in crate::guest) const FORBIDDEN_PORT: &str = ": the port may lie in a range that Windows keeps for itself, of which `netsh int ipv4 show excludedportrange tcp` \
     has a list; choose another with --listen, and in the host's settings";

fn raw(socket: &impl AsSocket) -> SOCKET {
    usize::try_from(socket.as_socket().as_raw_socket()).unwrap_or(usize::MAX)
}

fn last_error() -> io::Error {
    // SAFETY: it takes nothing.
    io::Error::from_raw_os_error(unsafe { WSAGetLastError() })
}

fn set(socket: SOCKET, level: i32, option: i32, value: bool) -> io::Result<()> {
    let value = i32::from(value);
    let len = i32::try_from(size_of::<i32>()).unwrap_or(0);
    // SAFETY: the value is of the size that is said.
    if unsafe { setsockopt(socket, level, option, (&raw const value).cast(), len) } == 0 {
        return Ok(());
    }
    Err(last_error())
}

/// Nobody else may take the port while it is ours. To be had again at once it needs nothing here, and what has that name on
/// Unix would let others share it.
pub(in crate::guest) fn set_reuse_address(socket: &TcpSocket) -> io::Result<()> {
    set(raw(socket), SOL_SOCKET, SO_EXCLUSIVEADDRUSE, true)
}

/// Whether the socket leaves IPv4 to others.
pub(in crate::guest) fn set_v6_only(socket: &TcpSocket, only: bool) -> io::Result<()> {
    set(raw(socket), IPPROTO_IPV6, IPV6_V6ONLY, only)
}

/// A caller that vanished without a word (its machine, a forwarder) is noticed within a minute, however long the
/// call that it waits for.
pub(in crate::guest) fn keep_alive(socket: impl AsSocket) -> io::Result<()> {
    let milliseconds = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let wanted =
        tcp_keepalive { onoff: 1, keepalivetime: milliseconds(IDLE), keepaliveinterval: milliseconds(BETWEEN) };
    let (size, mut len) = (u32::try_from(size_of::<tcp_keepalive>()).unwrap_or(0), 0);
    // SAFETY: the structure is of the size that is said, and the one that this control takes; it ends at once.
    let code = unsafe {
        WSAIoctl(
            raw(&socket),
            SIO_KEEPALIVE_VALS,
            (&raw const wanted).cast(),
            size,
            null_mut(),
            0,
            &raw mut len,
            null_mut(),
            None,
        )
    };
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

/// A second handle to a connection, which stays open when the first is closed.
pub(in crate::guest) fn another_handle(stream: &TcpStream) -> io::Result<std::net::TcpStream> {
    Ok(stream.as_socket().try_clone_to_owned()?.into())
}
