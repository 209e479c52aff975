//! The sockets of the guest that others can reach, and who holds them.
//!
//! UNSAFETY: the calls take pointers. Each points at a value that lives across the call, as long as is said.
#![expect(unsafe_code, reason = "the tables of sockets have no safe form")]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use windows_sys::Win32::{
    Foundation::{ERROR_INSUFFICIENT_BUFFER, ERROR_SUCCESS},
    NetworkManagement::IpHelper::{
        GetExtendedTcpTable, GetExtendedUdpTable, TCP_TABLE_OWNER_PID_LISTENER, UDP_TABLE_OWNER_PID,
    },
    Networking::WinSock::{AF_INET, AF_INET6},
};

use super::{nt::small_number, process_list, process_look, process_table, time_text::now};
use crate::protocol::{SocketOwner, SocketProtocol, SystemSocket, SystemSockets};

/// Bytes of a table that are asked for at most: half a million sockets.
const MOST_OF_TABLE: u32 = 32 * 1024 * 1024;

/// A socket, and who holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    port: u16,
    address: IpAddr,
    pid: u32,
}

/// How the rows of a table look: their length, and where in them stand address, port and process.
struct Form {
    len: usize,
    address: usize,
    is_v6: bool,
    port: usize,
    pid: usize,
}

const TCP_4: Form = Form { len: 24, address: 4, is_v6: false, port: 8, pid: 20 };
const TCP_6: Form = Form { len: 56, address: 0, is_v6: true, port: 20, pid: 52 };
const UDP_4: Form = Form { len: 12, address: 0, is_v6: false, port: 4, pid: 8 };
const UDP_6: Form = Form { len: 28, address: 0, is_v6: true, port: 20, pid: 24 };

impl Form {
    fn rows(&self, table: &[u8]) -> Vec<Row> {
        let count = small_number(table, 0).unwrap_or(0) as usize;
        let rows = table.get(4..).unwrap_or_default().chunks_exact(self.len).take(count);
        rows.filter_map(|row| self.row(row)).collect()
    }

    fn row(&self, row: &[u8]) -> Option<Row> {
        let address = if self.is_v6 {
            let bytes: [u8; 16] = row.get(self.address..self.address + 16)?.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        } else {
            let bytes: [u8; 4] = row.get(self.address..self.address + 4)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(bytes))
        };
        let port = u16::from_be_bytes(row.get(self.port..self.port + 2)?.try_into().ok()?);
        Some(Row { port, address, pid: small_number(row, self.pid)? })
    }
}

fn table(protocol: SocketProtocol, is_v6: bool) -> io::Result<Vec<u8>> {
    let family = u32::from(if is_v6 { AF_INET6 } else { AF_INET });
    let mut size = 16 * 1024;
    loop {
        let mut words = vec![0_u64; size as usize / 8];
        let mut len = u32::try_from(size_of_val(&*words)).unwrap_or(0);
        let buffer = words.as_mut_ptr().cast();
        // SAFETY: the buffer is as long as is said, and the place of its type.
        let code = unsafe {
            match protocol {
                SocketProtocol::Tcp => {
                    GetExtendedTcpTable(buffer, &raw mut len, 0, family, TCP_TABLE_OWNER_PID_LISTENER, 0)
                }
                _ => GetExtendedUdpTable(buffer, &raw mut len, 0, family, UDP_TABLE_OWNER_PID, 0),
            }
        };
        match code {
            ERROR_SUCCESS => return Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            // it grows while it is asked for
            ERROR_INSUFFICIENT_BUFFER if size < MOST_OF_TABLE => size = (size * 2).max(len).min(MOST_OF_TABLE),
            code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
    }
}

/// All of them at this moment. It blocks.
///
/// # Errors
/// When the system does not tell.
pub(in crate::guest) fn system_sockets() -> io::Result<SystemSockets> {
    let mut found = Vec::new();
    for (protocol, form) in [
        (SocketProtocol::Tcp, TCP_4),
        (SocketProtocol::Tcp, TCP_6),
        (SocketProtocol::Udp, UDP_4),
        (SocketProtocol::Udp, UDP_6),
    ] {
        match table(protocol, form.is_v6) {
            Ok(bytes) => found.extend(form.rows(&bytes).into_iter().map(|row| (protocol, row))),
            // a system can be without IPv6
            Err(_) if form.is_v6 => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable();
    found.dedup();
    let names: HashMap<u32, String> =
        process_list::snapshot()?.into_iter().map(|entry| (entry.pid, entry.name)).collect();
    let mut users: HashMap<u32, Option<String>> = HashMap::new();
    let sockets = found
        .into_iter()
        .map(|(protocol, row)| SystemSocket {
            protocol,
            address: row.address.to_string(),
            port: row.port,
            user: users
                .entry(row.pid)
                .or_insert_with(|| process_look::user(&process_table::open(row.pid).ok()?))
                .clone(),
            // who has ended has left its socket to a child, which the system does not name
            owners: names
                .get(&row.pid)
                .map(|name| SocketOwner { pid: row.pid, name: name.clone() })
                .into_iter()
                .collect(),
        })
        .collect();
    Ok(SystemSockets { taken_at: now(), sockets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_its_sockets() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let snapshot = system_sockets().unwrap();
        for (protocol, address) in
            [(SocketProtocol::Tcp, tcp.local_addr().unwrap()), (SocketProtocol::Udp, udp.local_addr().unwrap())]
        {
            let mut of_port =
                snapshot.sockets.iter().filter(|socket| socket.protocol == protocol && socket.port == address.port());
            let socket = of_port.find(|socket| socket.address == "127.0.0.1").unwrap();
            assert_eq!(socket.owners.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [std::process::id()]);
        }
    }

    #[test]
    fn rows_are_read() {
        let mut table = 2_u32.to_le_bytes().to_vec();
        table.extend([0, 0, 0, 0, 127, 0, 0, 1, 0x22, 0x3d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
        table.extend([9; 10]);
        let row = Row { port: 8765, address: "127.0.0.1".parse().unwrap(), pid: 7 };
        assert_eq!(TCP_4.rows(&table), [row]);
        assert_eq!(TCP_4.rows(&[]), []);
        let mut table = 1_u32.to_le_bytes().to_vec();
        table.extend(Ipv6Addr::LOCALHOST.octets());
        table.extend([0, 0, 0, 0, 0, 53, 0, 0, 4, 0, 0, 0]);
        assert_eq!(UDP_6.rows(&table), [Row { port: 53, address: "::1".parse().unwrap(), pid: 4 }]);
    }
}
