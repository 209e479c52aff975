//! One test binary: a module a capability, each driving the real executable over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy knows only #[test] functions as tests, not what they share"
)]

mod auth;
mod client;
mod compose;
mod docker;
mod doctor;
mod doctor_table;
mod emit;
mod engine_failures;
mod engines;
mod events;
mod exec;
mod health;
mod help;
mod house;
mod limits;
mod local_pod;
mod openapi;
mod pod_events;
mod pod_exec;
mod powershell;
mod readme;
mod serve;
mod setup;
mod support;
mod system;
mod vm;
mod wait_ready;
