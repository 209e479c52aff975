//! The Unix half: Linux first, with what every Unix has as the fallback.

mod account;
mod files;
mod signals;
mod socket;

pub(in crate::guest) use account::account;
pub(in crate::guest) use files::open_private_append;
pub use files::{default_runs_dir, default_token_file};
pub(in crate::guest) use signals::Signals;
pub(in crate::guest) use socket::{connection_limit, keep_alive, set_reuse_address, set_v6_only};
