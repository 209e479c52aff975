//! The agent: admission, readiness gates, exec.

mod error;
mod extract;
mod request_id;
mod sys;

pub use error::GuestError;
