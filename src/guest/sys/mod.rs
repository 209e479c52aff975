//! What differs by operating system, behind the same function names for each.

mod unix;

pub(super) use unix::{
    Signals, account, connection_limit, keep_alive, open_private_append, set_reuse_address, set_v6_only,
};
pub use unix::{default_runs_dir, default_token_file};
