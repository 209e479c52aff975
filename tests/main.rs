//! One test binary: a module a capability, each driving the real executable over real sockets.

mod exec;
mod house;
mod powershell;
mod support;
