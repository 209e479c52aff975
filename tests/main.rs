//! One test binary: a module a capability, each driving the real executable over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows only #[test] functions as tests, not what they share"
)]

mod client;
mod house;
mod pod_exec;
mod support;
mod wait_ready;
