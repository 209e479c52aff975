//! The texts of `/proc`, read: bytes in, values out, no I/O.
//!
//! Implementation note: why not a crate. procfs' readers are all or nothing: a name that is not UTF-8 costs the signal
//! masks and the command line of its process, an empty argument is dropped, one line that it does not know costs a whole
//! table of sockets. sysinfo knows neither signal masks nor sockets. What is needed here is a few fields of each text,
//! and whatever else stands in it must not matter.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: String,
    /// One letter.
    pub(super) state: char,
    pub(super) parent: u32,
    /// In user and kernel mode, in clock ticks.
    pub(super) cpu_ticks: u64,
    pub(super) threads: u32,
    /// Since boot, in clock ticks.
    pub(super) started_ticks: u64,
}

impl Stat {
    /// `pid (name) state ppid …`: the name may hold anything, brackets too, but none follows it.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        // numbered as in proc_pid_stat(5), where the state is the third
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |place: usize| field(place)?.parse::<u64>().ok();
        Some(Self {
            name,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: field(20)?.parse().ok()?,
            started_ticks: number(22)?,
        })
    }
}

/// What `/proc/<pid>/status` says besides; `None` what it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// The effective one.
    pub(super) uid: Option<u32>,
    /// Of the resident set; kernel threads and zombies have none.
    pub(super) memory_bytes: Option<u64>,
    /// Masks of signals, the lowest bit for signal 1.
    pub(super) caught: Option<u64>,
    pub(super) blocked: Option<u64>,
    pub(super) ignored: Option<u64>,
}

impl Status {
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            // the kernel escapes a name's line feeds, so a name cannot make a line of its own
            let Some((key, value)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(':')) else {
                continue;
            };
            let mut words = value.split_ascii_whitespace();
            let mut mask = || u64::from_str_radix(words.next()?, 16).ok();
            match key {
                "SigCgt" => status.caught = mask(),
                "SigBlk" => status.blocked = mask(),
                "SigIgn" => status.ignored = mask(),
                // real, effective, saved, of the file system
                "Uid" => status.uid = words.nth(1).and_then(|word| word.parse().ok()),
                "VmRSS" => status.memory_bytes = words.next().and_then(kibibytes),
                _ => {}
            }
        }
        status
    }
}

fn kibibytes(word: &str) -> Option<u64> {
    word.parse::<u64>().ok()?.checked_mul(1024)
}

/// The signals of a mask by number.
pub(super) fn signals_in(mask: u64) -> impl Iterator<Item = u32> {
    (1..=u64::BITS).filter(move |number| mask >> (number - 1) & 1 == 1)
}

/// More empty arguments at the end than this are no arguments: a program that writes a title over its command line (sshd,
/// postgres) leaves the rest of it blank.
const MOST_EMPTY: usize = 8;

/// The arguments in the text of `/proc/<pid>/cmdline`.
pub(super) fn arguments(text: &[u8]) -> Vec<String> {
    let Some((last, _)) = text.split_last() else { return Vec::new() };
    let text = if *last == 0 { &text[..text.len() - 1] } else { text };
    let mut arguments: Vec<String> =
        text.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect();
    let blank = arguments.iter().rev().take_while(|argument| argument.is_empty()).count();
    if blank > MOST_EMPTY {
        arguments.truncate(arguments.len() - blank);
    }
    arguments
}

/// The value of a variable in the text of `/proc/<pid>/environ`.
pub(super) fn variable(text: &[u8], name: &str) -> Option<String> {
    let value = text
        .split(|byte| *byte == 0)
        .find_map(|line| line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// What follows `prefix` in the name of a control group, of version 2, that the text of `/proc/<pid>/cgroup` names: the
/// outermost, since a program may have made groups of its own below.
pub(super) fn group_after(text: &[u8], prefix: &str) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // the kernel says so where a zombie's group is gone
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.split('/').find_map(|part| part.strip_prefix(prefix)).filter(|rest| !rest.is_empty()).map(str::to_owned)
}

/// Names by number of the text of `/etc/passwd`; the first line of a number counts.
pub(super) fn account_names(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in String::from_utf8_lossy(text).lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(number))) = (fields.next(), fields.nth(1).map(str::parse)) {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    names
}

/// Seconds since 1970 at which the system was started, and how many processors it has: of the text of `/proc/stat`.
pub(super) fn boot_and_cpus(text: &[u8]) -> (Option<i64>, u32) {
    let (mut boot, mut cpus) = (None, 0);
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(number) = line.strip_prefix(b"btime ") {
            boot = std::str::from_utf8(number).ok().and_then(|number| number.trim().parse().ok());
        } else if line.strip_prefix(b"cpu").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit) {
            cpus += 1;
        }
    }
    (boot, cpus)
}

/// Bytes of memory in all, of the text of `/proc/meminfo`.
pub(super) fn memory_total(text: &[u8]) -> Option<u64> {
    String::from_utf8_lossy(text)
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|value| kibibytes(value.split_ascii_whitespace().next()?))
}

/// A line of `/proc/net/{tcp,tcp6,udp,udp6}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketLine {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// The kernel's number of a TCP state; UDP borrows two of them.
    pub(super) state: u8,
    pub(super) uid: u32,
    pub(super) inode: u64,
}

impl SocketLine {
    /// TCP's that others can connect to.
    pub(super) const LISTENING: u8 = 0x0a;
    /// UDP's that take from anybody (`TCP_CLOSE`); a connected one takes from its peer alone.
    pub(super) const UNCONNECTED: u8 = 0x07;

    /// `sl local remote state queues timer retransmits uid timeout inode …`; the first line of a table is none.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        let state = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
        let uid = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Self { address: ip_address(address)?, port: u16::from_str_radix(port, 16).ok()?, state, uid, inode })
    }
}

/// An address as words of 32 bits in hex: each is printed as this machine reads its four bytes, which are in the
/// network's order.
fn ip_address(text: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::from_str_radix(text, 16).map(u32::to_ne_bytes).ok();
    match text.len() {
        8 => Some(Ipv4Addr::from(word(text)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (index, place) in octets.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&word(text.get(8 * index..8 * index + 8)?)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The inode in the target of a link of `/proc/<pid>/fd`, where it is a socket.
pub(super) fn socket_inode(target: &[u8]) -> Option<u64> {
    std::str::from_utf8(target).ok()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat(name: &[u8]) -> Vec<u8> {
        let rest = b") S 7 71 42 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 3 0 1190956 1 2 3";
        [b"71 (", name, rest].concat()
    }

    #[test]
    fn a_name_is_read_whatever_it_holds() {
        for name in ["sh", ") R (", "a) S 1 (\nb", "", "(", ")", " ) Z 1 1 1"] {
            let wanted = Stat {
                name: name.to_owned(),
                state: 'S',
                parent: 7,
                cpu_ticks: 200,
                threads: 3,
                started_ticks: 1_190_956,
            };
            assert_eq!(Stat::parse(&stat(name.as_bytes())), Some(wanted), "{name:?}");
        }
        assert_eq!(Stat::parse(&stat(b"\xff\xc3")).unwrap().name, "\u{fffd}\u{fffd}");
        for broken in [&b""[..], b")(", b"1 (", b"1 (a", b"1 (a)", b"1 (a) S", b"1 (a) S 1 1"] {
            assert_eq!(Stat::parse(broken), None);
        }
    }

    #[test]
    fn a_status_is_read_and_what_is_missing_is_none() {
        let text =
            b"Name:\t\xff:SigCgt: 1\nUmask:\t0022\nUid:\t1\t2\t3\t4\nVmRSS:\t  12 kB\nSigBlk:\t0000000000010000\n\
            SigIgn:\tffffffffffffffff\nSigCgt:\tnonsense\n";
        let status = Status::parse(text);
        let wanted = Status {
            uid: Some(2),
            memory_bytes: Some(12 * 1024),
            caught: None,
            blocked: Some(0x10000),
            ignored: Some(u64::MAX),
        };
        assert_eq!(status, wanted);
        assert_eq!(Status::parse(b""), Status::default());
    }

    #[test]
    fn arguments_are_as_they_were_given() {
        assert_eq!(arguments(b""), [""; 0]);
        assert_eq!(arguments(b"sh\0-c\0\0"), ["sh", "-c", ""]);
        assert_eq!(arguments(b"a\nb\0\xff"), ["a\nb", "\u{fffd}"]);
        assert_eq!(arguments(&[b"sshd: root", &[0; 40][..]].concat()), ["sshd: root"]);
        assert_eq!(arguments(&[0; 3]), ["", "", ""]);
    }

    #[test]
    fn marks_and_groups_are_found() {
        let environ = b"PODLINK_CALLS=no\0PODLINK_CALL=p-1\0A=PODLINK_CALL=p-2\0";
        assert_eq!(variable(environ, "PODLINK_CALL").as_deref(), Some("p-1"));
        assert_eq!(variable(b"A=PODLINK_CALL=p-2\0PODLINK_CALL", "PODLINK_CALL"), None);
        let group = |text: &str| group_after(text.as_bytes(), "podlink-12-");
        assert_eq!(group("1:cpu:/podlink-12-no\n0::/a/podlink-12-p-1\n").as_deref(), Some("p-1"));
        assert_eq!(group("0::/podlink-12-p-1/own/podlink-12-p-2 (deleted)\n").as_deref(), Some("p-1"));
        assert_eq!(group("0::/podlink-12-p-1 (deleted)\n").as_deref(), Some("p-1"));
        for other in ["", "0::/", "0::/podlink-123-p-1", "0::/podlink-12-", "0::/xpodlink-12-p"] {
            assert_eq!(group(other), None, "{other}");
        }
    }

    #[test]
    fn the_machine_is_read() {
        let text = b"cpu  1 2\ncpu0 1\ncpu1 1\nintr 5 6\nctxt 1\nbtime 1795975286\nprocesses 9\n";
        assert_eq!(boot_and_cpus(text), (Some(1_795_975_286), 2));
        assert_eq!(memory_total(b"MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_total(b"MemTotal: 18446744073709551615 kB\n"), None);
        let names = account_names(b"root:x:0:0:root:/root:/bin/sh\n# odd\n\xff:x:7:7::/:\ntoor:x:0:0::/:\n");
        assert_eq!(names, HashMap::from([(0, "root".to_owned()), (7, "\u{fffd}".to_owned())]));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_read() {
        let line =
            "   1: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 580 1 0 100";
        let socket = SocketLine::parse(line).unwrap();
        let address = Ipv4Addr::LOCALHOST.into();
        assert_eq!(socket, SocketLine { address, port: 8765, state: 10, uid: 1000, inode: 580 });
        let line = "5: B80D0120000000000000000001000000:0016 0:0 07 0:0 00:0 0 0 0 18446744073709551615";
        let socket = SocketLine::parse(line).unwrap();
        assert_eq!((socket.address.to_string().as_str(), socket.inode), ("2001:db8::1", u64::MAX));
        assert_eq!(SocketLine::parse("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
        assert_eq!(socket_inode(b"socket:[580]"), Some(580));
        for other in [&b"socket:[x]"[..], b"socket:[1", b"pipe:[580]", b"/tmp/socket:[580]", b"\xff"] {
            assert_eq!(socket_inode(other), None);
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in prop::collection::vec(any::<u8>(), 0..300), line in "\\PC{0,120}") {
            drop((Stat::parse(&text), Status::parse(&text), arguments(&text), variable(&text, "A")));
            drop((group_after(&text, "podlink-1-"), account_names(&text), boot_and_cpus(&text)));
            let _ = (memory_total(&text), socket_inode(&text), SocketLine::parse(&line), ip_address(&line));
        }

        #[test]
        fn no_name_changes_what_stands_around_it(name in prop::collection::vec(any::<u8>(), 0..16)) {
            let stat = Stat::parse(&stat(&name)).unwrap();
            prop_assert_eq!(&stat.name, &String::from_utf8_lossy(&name));
            prop_assert_eq!((stat.state, stat.parent, stat.started_ticks), ('S', 7, 1_190_956));
        }

        #[test]
        fn masks_come_back(mask in any::<u64>()) {
            let again = signals_in(mask).fold(0_u64, |mask, number| mask | 1 << (number - 1));
            prop_assert_eq!(again, mask);
        }

        #[test]
        fn arguments_come_back(wanted in prop::collection::vec("[^\0]{1,20}", 1..10)) {
            let text: Vec<u8> = wanted.iter().flat_map(|argument| argument.bytes().chain([0])).collect();
            prop_assert_eq!(arguments(&text), wanted);
        }

        #[test]
        fn addresses_come_back(four in any::<[u8; 4]>(), six in any::<[u8; 16]>()) {
            use std::fmt::Write as _;
            let hex = |octets: &[u8]| octets.chunks_exact(4).fold(String::new(), |mut text, word| {
                write!(text, "{:08X}", u32::from_ne_bytes(word.try_into().unwrap())).unwrap();
                text
            });
            prop_assert_eq!(ip_address(&hex(&four)), Some(IpAddr::from(four)));
            prop_assert_eq!(ip_address(&hex(&six)), Some(IpAddr::from(six)));
        }
    }
}
