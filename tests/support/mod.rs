//! The harness: the real executable, real sockets, folders of its own for each test.

#![allow(dead_code, unreachable_pub, reason = "each test module uses its own part of the harness")]

pub mod agent;
pub mod cli;
pub mod events;
pub mod fake;
pub mod http;
pub mod link;
pub mod local;
pub mod pe;
pub mod podman;
pub mod port;
pub mod processes;
pub mod proxy;
pub mod schema;
pub mod stream;
pub mod terminal;
pub mod vm;
pub mod wait;
pub mod wine;
pub mod wine_calls;
pub mod ws;

pub use agent::Agent;
pub use cli::Cli;
pub use http::{Answer, Http};
pub use local::LocalPod;
pub use podman::Podman;
pub use port::Port;
pub use stream::{Item, Stream};
pub use terminal::Terminal;
pub use wait::wait_for;
pub use wine::{Wine, WineAgent, WineSetup};
