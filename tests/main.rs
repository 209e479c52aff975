//! One test binary: a module a capability, each driving the real executable over real sockets.

mod client;
mod house;
mod pod_exec;
mod support;
mod wait_ready;
