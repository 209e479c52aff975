//! What the machine is, and how busy.

use std::io;

use crate::protocol::{Metrics, SystemInfo};

/// What it is.
pub(in crate::guest) fn system_info() -> io::Result<SystemInfo> {
    todo!()
}

/// How busy it is.
pub(in crate::guest) fn system_metrics() -> io::Result<Metrics> {
    todo!()
}
