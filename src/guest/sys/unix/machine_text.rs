//! The texts of `/proc` and `/etc` that tell of the whole machine, read: bytes in, values out, no I/O.
//!
//! Implementation note: as in `proc_text`, what is not known here does not matter: a line that does not read is passed
//! over, a number that is missing is 0. A crate such as sysinfo would hold state between looks, for a few fields of each
//! text that need none.

use crate::protocol::{CpuSeconds, DiskIo, MemoryBytes, NetworkIo};

/// Bytes of a sector of `/proc/diskstats`, whatever the disk's own are.
const SECTOR: u64 = 512;

/// Most disks, interfaces and file systems that are told of: a guest may make any number.
pub(super) const MOST_LISTED: usize = 256;

/// What `/proc/stat` says of the processors and of what runs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stat {
    pub(super) cpu_seconds: CpuSeconds,
    pub(super) forks: u64,
    pub(super) running: u64,
    pub(super) blocked: u64,
}

impl Stat {
    pub(super) fn parse(text: &[u8], ticks_per_second: u64) -> Self {
        let mut stat = Self::default();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split_ascii_whitespace();
            let key = words.next();
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match key {
                Some("cpu") => {
                    #[expect(clippy::cast_precision_loss, reason = "a processor does not run for so long")]
                    let mut seconds = || number() as f64 / ticks_per_second.max(1) as f64;
                    // fields are taken in this order; what guests of this system use is in `user` already
                    stat.cpu_seconds = CpuSeconds {
                        user: seconds(),
                        nice: seconds(),
                        system: seconds(),
                        idle: seconds(),
                        iowait: seconds(),
                        irq: seconds(),
                        softirq: seconds(),
                        steal: seconds(),
                    };
                }
                Some("processes") => stat.forks = number(),
                Some("procs_running") => stat.running = number(),
                Some("procs_blocked") => stat.blocked = number(),
                _ => {}
            }
        }
        stat
    }
}

/// The text of `/proc/meminfo`. A kernel older than 3.14 does not say what is available: then what is free and cached.
pub(super) fn memory(text: &[u8]) -> MemoryBytes {
    let (mut memory, mut available) = (MemoryBytes::default(), None);
    for line in String::from_utf8_lossy(text).lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let kibibytes = value.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        let Some(bytes) = kibibytes.and_then(|count| count.checked_mul(1024)) else { continue };
        match key {
            "MemTotal" => memory.total = bytes,
            "MemFree" => memory.free = bytes,
            "MemAvailable" => available = Some(bytes),
            "Buffers" => memory.buffers = bytes,
            "Cached" => memory.cached = bytes,
            "SwapTotal" => memory.swap_total = bytes,
            "SwapFree" => memory.swap_free = bytes,
            _ => {}
        }
    }
    memory.available = available.unwrap_or_else(|| memory.free.saturating_add(memory.cached));
    memory
}

/// The text of `/proc/loadavg`.
pub(super) fn load(text: &str) -> Option<[f64; 3]> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next()?.parse::<f64>().ok().filter(|load| load.is_finite());
    Some([next()?, next()?, next()?])
}

/// The text of `/proc/net/dev`.
pub(super) fn network(text: &[u8]) -> Vec<NetworkIo> {
    let text = String::from_utf8_lossy(text);
    let interface = |line: &str| {
        // a name may hold a colon (an alias), the numbers do not
        let (name, numbers) = line.rsplit_once(':')?;
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[received_bytes, received_packets, receive_errors, receive_drops, _, _, _, _, ref sent @ ..] =
            numbers.as_slice()
        else {
            return None;
        };
        let &[sent_bytes, sent_packets, send_errors, send_drops, ..] = sent else { return None };
        Some(NetworkIo {
            interface: name.trim().to_owned(),
            received_bytes,
            received_packets,
            receive_errors,
            receive_drops,
            sent_bytes,
            sent_packets,
            send_errors,
            send_drops,
        })
    };
    text.lines().filter_map(interface).take(MOST_LISTED).collect()
}

/// The text of `/proc/diskstats`, less what never did anything.
pub(super) fn disk_io(text: &[u8], is_whole_disk: impl Fn(&str) -> bool) -> Vec<DiskIo> {
    let text = String::from_utf8_lossy(text);
    let disk = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |place: usize| fields.get(place).and_then(|word| word.parse::<u64>().ok());
        let (device, reads, writes) = (*fields.get(2)?, number(3)?, number(7)?);
        if reads == 0 && writes == 0 || !is_whole_disk(device) {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a guest's life are far fewer")]
        let busy_seconds = number(12).unwrap_or(0) as f64 / 1000.0;
        Some(DiskIo {
            device: device.to_owned(),
            read_bytes: number(5)?.saturating_mul(SECTOR),
            written_bytes: number(9)?.saturating_mul(SECTOR),
            reads,
            writes,
            busy_seconds,
        })
    };
    text.lines().filter_map(disk).take(MOST_LISTED).collect()
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The file system's number: several places may show the same.
    pub(super) number: String,
    pub(super) place: String,
    pub(super) kind: String,
    pub(super) source: String,
}

impl Mount {
    /// `id parent major:minor root place options [optional…] - kind source …`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ');
        let (number, place) = (before.nth(2)?, before.nth(1)?);
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        Some(Self {
            number: number.to_owned(),
            place: unescaped(place),
            kind: kind.to_owned(),
            source: unescaped(source),
        })
    }

    /// Whether it lies on a disk of the guest's own. What lies on another machine may hang whoever asks for it.
    pub(super) fn is_on_a_disk(&self) -> bool {
        const DISKLESS: &[&str] = &["squashfs", "iso9660", "udf", "erofs"];
        (self.source.starts_with('/')
            || ["zfs", "btrfs", "bcachefs"].contains(&self.kind.as_str())
            || self.place == "/")
            && !self.source.starts_with("//")
            && !DISKLESS.contains(&self.kind.as_str())
            && !["nfs", "cifs", "smb", "fuse", "9p", "ceph", "afs"].iter().any(|kind| self.kind.starts_with(kind))
    }
}

/// Blanks and the like stand as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A value of `/etc/os-release`, which is written as shells take it.
pub(super) fn os_release(text: &str, wanted: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(wanted)?.strip_prefix('='))?.trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = match quote {
        Some(quote) => value.strip_prefix(quote)?.strip_suffix(quote).unwrap_or(value),
        None => value,
    };
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' && quote != Some('\'') { chars.next().unwrap_or(c) } else { c });
    }
    Some(plain).filter(|value| !value.is_empty())
}

/// What the first processor calls itself in the text of `/proc/cpuinfo`: each architecture has its own word for it.
pub(super) fn cpu_model(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let value = |wanted: &str| {
        let line = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted).then(|| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        text.lines().find_map(line)
    };
    ["model name", "Model", "cpu model", "cpu", "uarch"].into_iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_what_runs_are_read() {
        let text =
            b"cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 1\nctxt 5\nprocesses 77\nprocs_running 3\nprocs_blocked 1\n";
        let stat = Stat::parse(text, 100);
        let cpu = CpuSeconds {
            user: 1.0,
            nice: 0.2,
            system: 0.3,
            idle: 40.0,
            iowait: 0.5,
            irq: 0.06,
            softirq: 0.07,
            steal: 0.08,
        };
        assert_eq!(stat, Stat { cpu_seconds: cpu, forks: 77, running: 3, blocked: 1 });
        assert_eq!(Stat::parse(b"cpu nonsense\n\xff\nprocesses", 0), Stat::default());
    }

    #[test]
    fn memory_is_read_also_where_old_kernels_say_less() {
        let text = "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 60 kB\nBuffers: 1 kB\nCached: 20 kB\nSwapTotal: 8 kB\n\
                    SwapFree: 7 kB\nHugePages_Total: 0\nOdd\n";
        let wanted = MemoryBytes {
            total: 102_400,
            free: 10_240,
            available: 61_440,
            buffers: 1024,
            cached: 20_480,
            swap_total: 8192,
            swap_free: 7168,
        };
        assert_eq!(memory(text.as_bytes()), wanted);
        assert_eq!(memory(text.replace("MemAvailable", "X").as_bytes()).available, 30_720);
    }

    #[test]
    fn loads_are_read() {
        assert_eq!(load("0.10 1.25 3.00 2/345 6789\n"), Some([0.1, 1.25, 3.0]));
        for broken in ["", "1 2", "a b c", "inf 1 1"] {
            assert_eq!(load(broken), None, "{broken}");
        }
    }

    #[test]
    fn interfaces_are_read() {
        let text =
            b"Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            eth0:1:100 2 0 0 0 0 0 0 200 3 0 0 0 0 0 0\n short: 1 2 3\n";
        let seen = network(text);
        assert_eq!(seen.len(), 2);
        assert_eq!(
            seen[0],
            NetworkIo {
                interface: "lo".into(),
                received_bytes: 1,
                received_packets: 2,
                receive_errors: 3,
                receive_drops: 4,
                sent_bytes: 9,
                sent_packets: 10,
                send_errors: 11,
                send_drops: 12,
            }
        );
        assert_eq!((seen[1].interface.as_str(), seen[1].received_bytes, seen[1].sent_bytes), ("eth0:1", 100, 200));
        let many = "e: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n".repeat(1000);
        assert_eq!(network(many.as_bytes()).len(), MOST_LISTED);
    }

    #[test]
    fn disks_are_read() {
        let text = b" 254 0 vda 10 1 200 30 40 5 600 70 0 1500 90\n 254 1 vda1 10 1 200 30 40 5 600 70 0 80 90\n\
            7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n garbage\n";
        let seen = disk_io(text, |name| name != "vda1");
        let vda = DiskIo {
            device: "vda".into(),
            read_bytes: 200 * 512,
            written_bytes: 600 * 512,
            reads: 10,
            writes: 40,
            busy_seconds: 1.5,
        };
        assert_eq!(seen, [vda]);
    }

    #[test]
    fn mounts_are_read_and_those_on_disks_are_told_from_the_others() {
        let mount = |line: &str| Mount::parse(line).unwrap();
        let root = mount("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw");
        assert_eq!((root.number.as_str(), root.place.as_str(), root.kind.as_str()), ("254:0", "/", "ext4"));
        let odd = mount(r"30 22 8:1 / /mnt/a\040b\134\011 rw - vfat /dev/sd\040a rw");
        assert_eq!((odd.place.as_str(), odd.source.as_str()), ("/mnt/a b\\\t", "/dev/sd a"));
        for (line, on_disk) in [
            ("22 1 0:5 / / rw - overlay overlay rw", true),
            ("22 1 0:5 / / rw - rootfs none rw", true),
            ("22 1 0:5 / /data rw - zfs pool/data rw", true),
            ("22 1 0:5 / /proc rw - proc proc rw", false),
            ("22 1 0:5 / /n rw - nfs4 /exports/x rw", false),
            ("22 1 0:5 / /n rw - cifs //server/x rw", false),
            ("22 1 0:5 / /n rw - fuse.sshfs /dev/fuse rw", false),
            ("22 1 7:0 / /snap/x ro - squashfs /dev/loop0 ro", false),
        ] {
            assert_eq!(mount(line).is_on_a_disk(), on_disk, "{line}");
        }
        assert_eq!(Mount::parse("22 1 0:5 / /"), None);
    }

    #[test]
    fn the_system_names_itself() {
        let text = "PRETTY_NAME=\"A \\\"b\\\" 1\"\n# NAME=no\nNAME='c\\d'\nID=plain\nVERSION_ID=\n";
        assert_eq!(os_release(text, "PRETTY_NAME").as_deref(), Some("A \"b\" 1"));
        assert_eq!(os_release(text, "NAME").as_deref(), Some("c\\d"));
        assert_eq!(os_release(text, "ID").as_deref(), Some("plain"));
        assert_eq!((os_release(text, "VERSION_ID"), os_release(text, "X")), (None, None));
    }

    #[test]
    fn processors_name_themselves() {
        let text = b"processor : 0\nmodel : 85\nmodel name : Some CPU @ 2GHz\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Some CPU @ 2GHz"));
        assert_eq!(cpu_model(b"Model\t\t: Raspberry Pi 4\n").as_deref(), Some("Raspberry Pi 4"));
        assert_eq!(cpu_model(b"processor : 0\n"), None);
    }
}
