//! Calls: from a checked request to a run, at most once for each request id, a bounded number at a time.

mod answer;
mod call;
mod end;
mod ending;
mod info;
mod no_turn;
mod registry;
mod request;
mod roster;
mod sessions;
mod settings;
mod slots;
mod table;
mod text;

pub(super) use answer::Finished;
pub(super) use call::Joined;
pub use registry::Calls;
pub(super) use request::{Form, check, dimension, session};
pub use settings::Settings;
pub(super) use table::Digest;
