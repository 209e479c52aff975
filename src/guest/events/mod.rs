//! What the agent does, told to whoever listens.
//!
//! ```text
//! exec ─┐                                       ┌─ subscription (a place in the ring) ─▶ GET /events
//! token ┼─ emit ─▶ ring of the last events ◀────┼─ subscription …
//! log ──┘            └─ wake ─▶ tend ─ announces ┘
//! ```
//!
//! Whoever emits puts the event into the ring and goes on: it waits for nobody, and nothing that a reader does reaches
//! it. A reader is a place in the ring, so a thousand of them take hardly more memory than one; what the ring has
//! given up before a reader came to it is counted and told to that reader as `lagged`.

mod auth;
mod bus;
mod cut;
mod exec;
mod handler;
mod log;
mod ring;
mod settings;
mod sources;
mod subscription;

pub(super) use bus::Bus;
pub(super) use exec::CallEvents;
pub(super) use handler::get;
pub use log::LogTap;
pub use settings::Settings;
pub(super) use sources::watch;
