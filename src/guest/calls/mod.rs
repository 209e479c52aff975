//! Calls: from a checked request to a run, at most once for each request id, a bounded number at a time.

mod answer;
mod call;
mod registry;
mod request;
mod settings;
mod slots;
mod table;

pub use registry::Calls;
pub(super) use request::check;
pub use settings::Settings;
pub(super) use table::Digest;
