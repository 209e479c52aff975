//! The account and session that the agent runs in.

use crate::guest::account::Account;

/// Looks them up.
pub(in crate::guest) fn account() -> Account {
    let uid = rustix::process::geteuid();
    let session = rustix::process::getsid(None).map_or(0, |pid| pid.as_raw_nonzero().get());
    Account {
        user: user_name(uid.as_raw()),
        session_id: session.unsigned_abs(),
        interactive: has_terminal() || has_desktop(),
        elevated: uid.is_root(),
    }
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
    fn names_come_from_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\n# odd\n\nuser:x:1000:1000::/home/user:/bin/sh\n";
        assert_eq!(name_in(table, 0).as_deref(), Some("root"));
        assert_eq!(name_in(table, 1000).as_deref(), Some("user"));
        assert_eq!(name_in(table, 7), None);
    }
}
