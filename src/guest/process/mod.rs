//! One program, from its start to its end: spawned into a tree of its own, read, waited for, ended, cleaned up.
//!
//! ```text
//!            spawn ──▶ running ──▶ leader exits ──▶ drain what is there ──▶ Outcome (left-behind children live on)
//!                        │
//!                        └─ time-out, kill ──▶ end the whole tree ──▶ drain ──▶ Outcome (nobody lives on)
//! ```
//!
//! The *leader's* exit ends a call, never the end of its output: a child in the background may hold the pipes for
//! ever. What lies in the pipes at that moment is still read.

mod error;
mod launch;
mod output;
mod runs;
mod spec;
mod supervise;

pub(super) use error::SpawnError;
pub(super) use output::Captured;
pub(super) use runs::Runs;
pub(super) use spec::{Environment, Program, Spec};
pub(super) use supervise::{Ending, Environs, Kill, Lingering, Outcome, supervise};
