//! One test binary: a module a capability, each driving the real executable over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy knows only #[test] functions as tests, not what they share"
)]

mod client;
mod docker;
mod engine_failures;
mod engines;
mod exec;
mod help;
mod house;
mod openapi;
mod pod_exec;
mod powershell;
mod readme;
mod support;
mod wait_ready;
