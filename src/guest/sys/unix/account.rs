//! The account and session that the agent runs in.

use crate::guest::account::Account;

/// Looks them up.
pub(in crate::guest) fn account() -> Account {
    let uid = rustix::process::geteuid();
    Account {
        user: user_name(uid.as_raw()),
        session_id: session_in(&fs_err::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or(0),
        interactive: has_terminal() || has_desktop(),
        elevated: uid.is_root(),
    }
}

/// The session in the text of `/proc/<pid>/stat`; 0, which rustix' `getsid` cannot say, is the kernel's own: a guest's
/// first process and what it starts are in it until somebody calls `setsid`.
fn session_in(stat: &str) -> Option<u32> {
    // after the name, which may hold anything: state, parent, process group, session
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

/// The name in the system's table; then what the log-in left in the environment (accounts of a directory service are
/// in no table); then the number.
fn user_name(uid: u32) -> String {
    let table = fs_err::read("/etc/passwd").unwrap_or_default();
    name_in(&String::from_utf8_lossy(&table), uid)
        .or_else(|| std::env::var("USER").ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| uid.to_string())
}

fn name_in(table: &str, uid: u32) -> Option<String> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Only a process of a session with a controlling terminal can open this name of it.
fn has_terminal() -> bool {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::open("/dev/tty", flags | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()).is_ok()
}

fn has_desktop() -> bool {
    ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read() {
        assert_eq!(session_in("71 (a) b (c) S 1 71 0 0 -1"), Some(0));
        assert_eq!(session_in("71 (podlink) S 1 71 42 0 -1"), Some(42));
        assert_eq!(session_in(""), None);
        let own = std::process::id().to_string();
        #[expect(clippy::disallowed_methods, reason = "the other opinion")]
        let said = std::process::Command::new("ps").args(["-o", "sid=", "-p", &own]).output().unwrap().stdout;
        assert_eq!(account().session_id.to_string(), String::from_utf8_lossy(&said).trim());
    }

    #[test]
    fn names_come_from_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\n# odd\n\nuser:x:1000:1000::/home/user:/bin/sh\n";
        assert_eq!(name_in(table, 0).as_deref(), Some("root"));
        assert_eq!(name_in(table, 1000).as_deref(), Some("user"));
        assert_eq!(name_in(table, 7), None);
    }
}
