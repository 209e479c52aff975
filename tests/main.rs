//! One test binary: a module a capability, each driving the real executable over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy knows only #[test] functions as tests, not what they share"
)]

mod attach;
mod audit;
mod auth;
mod auth_slow;
mod client;
mod client_attach;
mod client_live;
mod client_stream;
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
mod install;
mod jobs;
mod kill;
mod limits;
mod local_pod;
mod log;
mod metrics;
mod openapi;
mod pod_events;
mod pod_exec;
mod pod_jobs;
mod pod_logs;
mod pod_stream;
mod pod_tty;
mod powershell;
mod readme;
mod restart;
mod serve;
mod sessions;
mod setup;
mod staging;
mod stream;
mod supervise;
mod support;
mod system;
mod time;
mod vm;
mod wait_ready;
mod wine;
mod winpodx;
