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
mod input;
mod launch;
mod live;
mod output;
mod ring;
mod runs;
mod spec;
mod supervise;

pub(super) use error::SpawnError;
pub(super) use input::Input;
pub(super) use live::{Kill, Live, Observer, Start, Wish};
pub(super) use output::Captured;
pub(super) use ring::{Chunk, Reader, Ring, RingSize};
pub(super) use runs::Runs;
pub(super) use spec::{Environment, Output, Program, Spec, Stdin, Terminal};
pub(super) use supervise::{Ending, Environs, Lingering, Outcome, supervise};
