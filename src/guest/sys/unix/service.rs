//! The agent as a service: its manager takes the process itself for it, and asks by SIGTERM.

use std::io;

use crate::guest::signals::{ServiceStart, StopRequests};

/// Runs `body`, and returns what that returned.
///
/// # Errors
/// None here; its twin has to be started by the service manager.
pub fn as_service(body: impl FnOnce(ServiceStart) -> u8 + Send + 'static) -> io::Result<u8> {
    let (_nobody, requests) = StopRequests::channel();
    Ok(body(ServiceStart { requests, recovery: Ok(()), restarts: false }))
}
