//! The harness: the real executable, real sockets, folders of its own for each test.

#![allow(dead_code, unreachable_pub, reason = "each test module uses its own part of the harness")]

pub mod cli;
pub mod fake;
pub mod port;
pub mod wait;

pub use cli::{Cli, Run};
pub use port::Port;
pub use wait::wait_for;
