//! Who is logged in: by the system's record of log-ins, or by its session manager where it keeps none any more.

use std::path::Path;

use jiff::Timestamp;

use super::proc_text;
use crate::protocol::LoggedIn;

/// Bytes of one record, as glibc and musl have it: on these processors times and session are 64 bits wide.
const RECORD: usize =
    if cfg!(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "s390x")) { 400 } else { 384 };

/// Where the time stands in a record.
const TIME: usize = if RECORD == 400 { 344 } else { 340 };

/// A record of this kind is somebody's log-in.
const USER_PROCESS: i16 = 7;

/// Most of them that are told of.
const MOST: usize = 256;

/// Everybody who is logged in.
pub(super) fn logged_in() -> Vec<LoggedIn> {
    for path in ["/run/utmp", "/var/run/utmp"] {
        if let Ok(records) = fs_err::read(path) {
            return of_records(&records, |pid| Path::new(&format!("/proc/{pid}")).exists());
        }
    }
    of_sessions(Path::new("/run/systemd/sessions"))
}

/// The records of log-ins whose process `lives`: who was cut off left his behind.
fn of_records(records: &[u8], lives: impl Fn(i32) -> bool) -> Vec<LoggedIn> {
    let login = |record: &[u8]| {
        let four = |at: usize| record.get(at..at + 4)?.try_into().ok();
        let kind = i16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        let pid = i32::from_ne_bytes(four(4)?);
        if kind != USER_PROCESS || !lives(pid) {
            return None;
        }
        let text = |at: usize, len: usize| {
            let field = record.get(at..at + len)?;
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(len);
            Some(String::from_utf8_lossy(&field[..end]).into_owned()).filter(|text| !text.is_empty())
        };
        let seconds = if RECORD == 400 {
            i64::from_ne_bytes(record.get(TIME..TIME + 8)?.try_into().ok()?)
        } else {
            // 32 bits without a sign last until 2106
            u32::from_ne_bytes(four(TIME)?).into()
        };
        Some(LoggedIn {
            user: text(44, 32)?,
            terminal: text(8, 32),
            from: text(76, 256),
            since: Timestamp::from_second(seconds).ok().map(|time| time.to_string()),
        })
    };
    records.chunks_exact(RECORD).filter_map(login).take(MOST).collect()
}

/// systemd's files of sessions: lines of `KEY=value`.
fn of_sessions(folder: &Path) -> Vec<LoggedIn> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let session = |text: Vec<u8>| {
        let lines: Vec<u8> = text.iter().map(|byte| if *byte == b'\n' { 0 } else { *byte }).collect();
        let value = |key| proc_text::variable(&lines, key).filter(|value| !value.is_empty());
        if !value("CLASS").is_some_and(|class| class.starts_with("user"))
            || value("STATE").as_deref() == Some("closing")
        {
            return None;
        }
        let since = value("REALTIME").and_then(|text| text.parse().ok());
        Some(LoggedIn {
            user: value("USER")?,
            terminal: value("TTY").or_else(|| value("SEAT")),
            from: value("REMOTE_HOST"),
            since: since.and_then(|time| Timestamp::from_microsecond(time).ok()).map(|time| time.to_string()),
        })
    };
    let texts = entries.flatten().filter_map(|entry| fs_err::read(entry.path()).ok());
    let mut users: Vec<_> = texts.filter_map(session).take(MOST).collect();
    users.sort_by(|a, b| (&a.since, &a.user).cmp(&(&b.since, &b.user)));
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: i16, pid: i32, user: &str, line: &str, host: &str, seconds: u32) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[..2].copy_from_slice(&kind.to_ne_bytes());
        record[4..8].copy_from_slice(&pid.to_ne_bytes());
        for (at, text) in [(8, line), (44, user), (76, host)] {
            record[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        record[TIME..TIME + 4].copy_from_slice(&seconds.to_ne_bytes());
        record
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn log_ins_are_read_and_those_of_the_dead_are_not() {
        let long = "u".repeat(32);
        let records = [
            record(2, 1, "reboot", "~", "", 1),
            record(USER_PROCESS, 10, "ann", "tty1", "", 1_795_975_286),
            record(USER_PROCESS, 11, &long, "pts/0", "10.0.0.7", 0),
            record(USER_PROCESS, 12, "gone", "pts/1", "", 1),
            record(USER_PROCESS, 13, "", "pts/2", "", 1),
            vec![7; 100],
        ]
        .concat();
        let seen = of_records(&records, |pid| pid != 12);
        let told: Vec<_> = seen
            .iter()
            .map(|login| {
                (login.user.as_str(), login.terminal.as_deref(), login.from.as_deref(), login.since.as_deref())
            })
            .collect();
        let expected = [
            ("ann", Some("tty1"), None, Some("2026-11-29T18:01:26Z")),
            (long.as_str(), Some("pts/0"), Some("10.0.0.7"), Some("1970-01-01T00:00:00Z")),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn sessions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("1", "UID=0\nUSER=ann\nCLASS=user\nSTATE=active\nTTY=tty1\nREALTIME=1795975286000000\n"),
            ("2", "USER=gdm\nCLASS=greeter\n"),
            ("3", "USER=bob\nCLASS=user\nSTATE=closing\n"),
            ("4", "CLASS=user\n"),
            ("5", "USER=eve\nCLASS=user\nSEAT=seat0\nREMOTE_HOST=10.0.0.7\nREALTIME=x\n"),
        ] {
            crate::token::replace_private(&folder.path().join(name), text.as_bytes()).unwrap();
        }
        let seen = of_sessions(folder.path());
        let names: Vec<_> = seen.iter().map(|login| (login.user.as_str(), login.terminal.as_deref())).collect();
        assert_eq!(names, [("eve", Some("seat0")), ("ann", Some("tty1"))]);
        assert_eq!(seen[1].since.as_deref(), Some("2026-11-29T18:01:26Z"));
        assert!(of_sessions(Path::new("/no/such")).is_empty());
    }
}
