//! Ports of this machine: which are free, and who holds one that is not.

use std::{
    fmt, io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
};

use super::{Error, ErrorKind, Result};

/// What listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A process that this user may look at.
    Process {
        /// Its name.
        name: String,
        /// Its id.
        pid: u32,
    },
    /// Another user's process, as far as the kernel tells.
    User {
        /// That user's numeric id.
        uid: u32,
    },
    /// Nothing is known of it.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { name, pid } => write!(f, "{name} (pid {pid})"),
            Self::User { uid } => write!(f, "a process of user {uid}"),
            Self::Unknown => f.write_str("another program"),
        }
    }
}

/// Over what a port is to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP alone.
    Tcp,
    /// TCP and UDP both, as remote desktop has it.
    TcpAndUdp,
}

/// Whether a server could listen on this port of 127.0.0.1 now.
pub fn is_free(port: u16, transport: Transport) -> bool {
    bind(port, transport).is_ok()
}

/// A free port that nobody asked for by number, chosen by the kernel.
///
/// # Errors
/// When the machine has none.
pub fn any_free() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::new(ErrorKind::PortTaken, "no port is free").with_source(error))
}

/// Fails, naming the port and who holds it, where it cannot be listened on.
///
/// # Errors
/// [`ErrorKind::PortTaken`].
pub fn require_free(label: &str, port: u16, transport: Transport) -> Result<()> {
    let Err(error) = bind(port, transport) else { return Ok(()) };
    if error.kind() == io::ErrorKind::AddrInUse {
        let owner = owner(port);
        return Err(Error::new(ErrorKind::PortTaken, format!("the {label} port {port} is taken by {owner}")));
    }
    Err(Error::new(ErrorKind::PortTaken, format!("the {label} port {port} cannot be listened on")).with_source(error))
}

fn bind(port: u16, transport: Transport) -> io::Result<()> {
    // fails too where somebody listens on 0.0.0.0 or on [::] for both families; not where on [::1] alone
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    if transport == Transport::TcpAndUdp {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    }
    Ok(())
}

/// Who holds a port, as well as can be told (Linux' `/proc`).
pub fn owner(port: u16) -> Owner {
    let tables = [("tcp", LISTEN), ("tcp6", LISTEN), ("udp", UNCONNECTED), ("udp6", UNCONNECTED)];
    for (table, state) in tables {
        let Ok(text) = fs_err::read_to_string(format!("/proc/net/{table}")) else { continue };
        if let Some((inode, uid)) = text.lines().find_map(|line| socket_in(line, port, state)) {
            return process_with(inode).unwrap_or(Owner::User { uid });
        }
    }
    Owner::Unknown
}

/// Who takes connections to this TCP port of 127.0.0.1; `None` where nobody does.
pub fn listener(port: u16) -> Option<Owner> {
    // what a connection to 127.0.0.1 may reach: that address, all addresses, both families at once
    const REACHED: [&str; 4] =
        ["0100007F", "00000000", "00000000000000000000000000000000", "0000000000000000FFFF00000100007F"];
    ["tcp", "tcp6"].into_iter().find_map(|table| {
        let text = fs_err::read_to_string(format!("/proc/net/{table}")).ok()?;
        let (inode, uid) = text.lines().find_map(|line| {
            let local = line.split_ascii_whitespace().nth(1)?;
            let reached = local.split_once(':').is_some_and(|(address, _)| REACHED.contains(&address));
            socket_in(line, port, LISTEN).filter(|_| reached)
        })?;
        Some(process_with(inode).unwrap_or(Owner::User { uid }))
    })
}

/// Whether a kernel's table (`/proc/net/tcp`) has a socket that listens on this port beyond 127.0.0.1.
pub(super) fn has_listener(table: &str, port: u16) -> bool {
    table.lines().any(|line| {
        let on_loopback = line.split_ascii_whitespace().nth(1).is_some_and(|local| local.starts_with("0100007F:"));
        !on_loopback && socket_in(line, port, LISTEN).is_some()
    })
}

/// The kernel's number for a TCP socket that listens.
const LISTEN: &str = "0A";
/// And for a UDP socket that is bound.
const UNCONNECTED: &str = "07";

/// The inode and user of the socket in a line of `/proc/net/tcp`, where it is bound to `port` in `state`.
fn socket_in(line: &str, port: u16, state: &str) -> Option<(u64, u32)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let address = local.rsplit_once(':')?;
    if u16::from_str_radix(address.1, 16).ok()? != port || fields.nth(1)? != state {
        return None;
    }
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some((inode, uid))
}

fn process_with(inode: u64) -> Option<Owner> {
    let wanted = format!("socket:[{inode}]");
    for entry in fs_err::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs_err::read_dir(entry.path().join("fd")) else { continue };
        if files.flatten().any(|file| fs_err::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*wanted)) {
            let name = fs_err::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(Owner::Process { name: name.trim().to_owned(), pid });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_its_owner() {
        for address in ["127.0.0.1", "0.0.0.0"] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(!is_free(port, Transport::Tcp));
            let error = require_free("agent", port, Transport::Tcp).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PortTaken);
            assert!(error.to_string().contains(&port.to_string()), "{error}");
            if cfg!(target_os = "linux") {
                assert!(error.to_string().contains(&format!("(pid {})", std::process::id())), "{error}");
            }
        }
    }

    #[test]
    fn a_listener_is_what_a_connection_reaches() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if cfg!(target_os = "linux") {
            assert!(matches!(super::listener(port), Some(Owner::Process { pid, .. }) if pid == std::process::id()));
        }
        drop(listener);
        let elsewhere = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        assert_eq!(super::listener(elsewhere.local_addr().unwrap().port()), None);
    }

    #[test]
    fn udp_counts_where_it_is_asked_for() {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(!is_free(port, Transport::TcpAndUdp));
    }

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line =
            "   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 34567 1 0";
        assert_eq!(socket_in(line, 8765, LISTEN), Some((34567, 1000)));
        assert_eq!(socket_in(line, 8766, LISTEN), None);
        assert_eq!(socket_in(line, 8765, UNCONNECTED), None);
        assert!(!has_listener(line, 8765), "on loopback alone");
        assert!(has_listener(&line.replace("0100007F", "00000000"), 8765));
    }
}
