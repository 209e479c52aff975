//! A port that no other test of any process holds.

use std::{fs::File, net::TcpListener};

/// A port on loopback, reserved among the tests of this machine for as long as the value lives.
///
/// Below the range from which the kernel gives ports to outgoing connections, so that none of those takes it.
#[must_use]
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reserved: File,
}

impl Port {
    /// Reserves a free one.
    pub fn reserve() -> Self {
        let folder = std::env::temp_dir().join("podlink-test-ports");
        std::fs::create_dir_all(&folder).unwrap();
        // start at a different place in each process and call: fewer collisions to step over
        let start = std::process::id()
            .wrapping_mul(31)
            .wrapping_add(COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        for step in 0..10_000 {
            let number = 20_000 + u16::try_from((start + step) % 10_000).unwrap();
            let lock = File::create(folder.join(number.to_string())).unwrap();
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Self { number, _reserved: lock };
            }
        }
        panic!("no free port from 20000 to 29999");
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Asserts that the port is listened on, and on 127.0.0.1 alone.
#[track_caller]
pub fn on_loopback_alone(port: u16) {
    let mut found = 0;
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&"0A")) = (fields.get(1), fields.get(3)) else { continue };
            if local.ends_with(&format!(":{port:04X}")) {
                assert_eq!(*local, format!("0100007F:{port:04X}"), "port {port} is open to others");
                found += 1;
            }
        }
    }
    assert_eq!(found, 1, "nothing listens on {port}");
}
