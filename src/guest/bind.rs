//! The agent's addresses: bound, or found to be held by an agent that runs already.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::net::{TcpListener, TcpSocket};

use super::second::{Occupant, look};

/// Connections that the system holds for us while we are busy.
const BACKLOG: u32 = 1024;

/// Bytes of answers that the system may hold for a caller who does not take them.
///
/// Left to itself it takes up to 4 MiB, more than a call's ring holds: of a stream that is cut, bytes that no caller
/// has seen could not be had again.
const SEND_BUFFER: u32 = 256 * 1024;

/// How long an agent that is going down is waited for: its default drain, and the kills after it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of claiming the addresses.
#[derive(Debug)]
pub enum Claim {
    /// They are ours.
    Bound(Vec<TcpListener>),
    /// An agent runs there and answers.
    AlreadyRuns {
        /// Where.
        address: SocketAddr,
        /// Which one.
        agent_id: String,
        /// Its version.
        version: String,
    },
}

/// Why the addresses could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another program holds the port.
    #[error(
        "port {} on {} is held by another program ({what}); stop it, or choose another port with --listen",
        address.port(), address.ip()
    )]
    Taken {
        /// The address.
        address: SocketAddr,
        /// What was seen of the other program.
        what: &'static str,
    },
    /// The system refused.
    #[error("cannot listen on {address}{}", hint(source))]
    Refused {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// What to do about it, where that is known.
fn hint(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::PermissionDenied { super::sys::FORBIDDEN_PORT } else { "" }
}

/// Binds all the addresses, or none.
///
/// An agent that is found going down is waited for.
///
/// # Errors
/// When another program holds one of them, or the system refuses.
pub async fn claim(addresses: &[SocketAddr]) -> Result<Claim, BindError> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let (address, error) = match bind_all(addresses) {
            Ok(listeners) => return Ok(Claim::Bound(listeners)),
            Err(failed) => failed,
        };
        // somebody's port may be none to ask for: who holds it says more than that
        let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
        if error.kind() != io::ErrorKind::AddrInUse && !is_forbidden {
            return Err(BindError::Refused { address, source: error });
        }
        match look(address).await {
            Occupant::Nobody if is_forbidden => return Err(BindError::Refused { address, source: error }),
            Occupant::Agent { agent_id, version } => {
                return Ok(Claim::AlreadyRuns { address, agent_id, version });
            }
            Occupant::Leaving | Occupant::Nobody if Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Occupant::Leaving => return Err(BindError::Taken { address, what: "an agent that is going down" }),
            Occupant::Nobody => return Err(BindError::Taken { address, what: "it refuses connections" }),
            Occupant::Silent => return Err(BindError::Taken { address, what: "it does not answer" }),
            Occupant::Foreign => return Err(BindError::Taken { address, what: "it does not answer as an agent does" }),
        }
    }
}

fn bind_all(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let bind = |address: &SocketAddr| {
        // [::] takes IPv4 connections too, unless an address of its own was given for those
        let v6_only = addresses.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        bind_one(*address, v6_only).map_err(|error| (*address, error))
    };
    addresses.iter().map(bind).collect()
}

fn bind_one(address: SocketAddr, v6_only: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.is_ipv6() {
        super::sys::set_v6_only(&socket, v6_only)?;
    }
    super::sys::set_reuse_address(&socket)?;
    // connections inherit it
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_may_not_be_had_tells_what_to_do() {
        let refused = |kind: io::ErrorKind| {
            BindError::Refused { address: ([127, 0, 0, 1], 80).into(), source: kind.into() }.to_string()
        };
        let said = refused(io::ErrorKind::PermissionDenied);
        assert!(said.starts_with("cannot listen on 127.0.0.1:80: ") && said.contains("--listen"), "{said}");
        assert_eq!(refused(io::ErrorKind::AddrNotAvailable), "cannot listen on 127.0.0.1:80");
    }
}
