//! The sockets of the guest that others can reach, and who holds them, out of `/proc`.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
};

use rustix::fs::{Dir, readlinkat};

use super::{
    proc_folder::{ProcFolder, pids},
    proc_text::{SocketLine, socket_inode},
    processes::{account_names, now},
};
use crate::protocol::{SocketOwner, SocketProtocol, SystemSocket, SystemSockets};

/// The tables, and the state of the sockets in them that others can reach.
const TABLES: &[(&str, SocketProtocol, u8)] = &[
    ("/proc/net/tcp", SocketProtocol::Tcp, SocketLine::LISTENING),
    ("/proc/net/tcp6", SocketProtocol::Tcp, SocketLine::LISTENING),
    ("/proc/net/udp", SocketProtocol::Udp, SocketLine::UNCONNECTED),
    ("/proc/net/udp6", SocketProtocol::Udp, SocketLine::UNCONNECTED),
];

/// Bytes of a table that are read: half a million connections.
const MOST_OF_TABLE: u64 = 64 * 1024 * 1024;

/// Looks at all of them. It blocks.
///
/// # Errors
/// When the system has no `/proc` to be read.
pub(in crate::guest) fn system_sockets() -> io::Result<SystemSockets> {
    let mut found = Vec::new();
    for (index, (path, protocol, state)) in TABLES.iter().enumerate() {
        match table(path, *state) {
            Ok(lines) => found.extend(lines.into_iter().map(|line| (*protocol, line))),
            // the first is there wherever there is a network; without IPv6 its tables are not
            Err(error) if index == 0 => return Err(error),
            Err(_) => {}
        }
    }
    found.sort_unstable_by_key(|(protocol, line)| (*protocol, line.port, line.address, line.inode));
    let mut owners = owners(found.iter().map(|(_, line)| line.inode))?;
    let accounts = account_names();
    let sockets = found
        .into_iter()
        .map(|(protocol, line)| SystemSocket {
            protocol,
            address: line.address.to_string(),
            port: line.port,
            user: Some(accounts.get(&line.uid).cloned().unwrap_or_else(|| line.uid.to_string())),
            owners: owners.remove(&line.inode).unwrap_or_default(),
        })
        .collect();
    Ok(SystemSockets { taken_at: now(), sockets })
}

/// The sockets of a table that are in this state. Line by line: connections, which are left out, may be many.
fn table(path: &str, state: u8) -> io::Result<Vec<SocketLine>> {
    let mut lines = BufReader::new(File::open(path)?.take(MOST_OF_TABLE));
    let (mut line, mut found) = (Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        found.extend(std::str::from_utf8(&line).ok().and_then(SocketLine::parse).filter(|line| line.state == state));
        line.clear();
    }
    Ok(found)
}

/// Who holds the sockets with these inodes, by inode.
fn owners(inodes: impl Iterator<Item = u64>) -> io::Result<HashMap<u64, Vec<SocketOwner>>> {
    let mut owners: HashMap<u64, Vec<SocketOwner>> = inodes.map(|inode| (inode, Vec::new())).collect();
    let mut target = Vec::new();
    for pid in pids()? {
        // gone in the meantime, or another user's
        let Ok(folder) = ProcFolder::open(pid) else { continue };
        let Ok(files) = folder.folder("fd") else { continue };
        let Ok(entries) = Dir::read_from(&files) else { continue };
        let mut name = None;
        for entry in entries.flatten() {
            let Ok(link) = readlinkat(&files, entry.file_name(), std::mem::take(&mut target)) else { continue };
            if let Some(of_socket) = socket_inode(link.to_bytes()).and_then(|inode| owners.get_mut(&inode))
                // one process may hold it twice
                && of_socket.last().is_none_or(|owner| owner.pid != pid)
            {
                let name = name.get_or_insert_with(|| name_of(&folder)).clone();
                of_socket.push(SocketOwner { pid, name });
            }
            target = link.into_bytes();
        }
    }
    Ok(owners)
}

fn name_of(folder: &ProcFolder) -> String {
    // 16 bytes, and a line feed that is not its own
    let mut buffer = Vec::new();
    let name = folder.read("comm", 64, &mut buffer).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_its_sockets() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let again = tcp.try_clone().unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(udp.local_addr().unwrap()).unwrap();
        let snapshot = system_sockets().unwrap();
        let find = |protocol, port| {
            snapshot.sockets.iter().find(move |socket| socket.protocol == protocol && socket.port == port)
        };
        for (protocol, address) in
            [(SocketProtocol::Tcp, tcp.local_addr().unwrap()), (SocketProtocol::Udp, udp.local_addr().unwrap())]
        {
            let socket = find(protocol, address.port()).unwrap();
            assert_eq!(socket.address, "127.0.0.1");
            assert_eq!(socket.user, Some(super::super::account().user));
            // another test's child may hold it too, between its fork and its exec
            let own = socket.owners.iter().filter(|owner| owner.pid == std::process::id());
            assert_eq!(own.count(), 1, "{socket:?}");
        }
        // it takes from its peer alone
        assert_eq!(find(SocketProtocol::Udp, connected.local_addr().unwrap().port()), None);
        drop(again);
    }
}
