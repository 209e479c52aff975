//! The Unix half: Linux first, with what every Unix has as the fallback.

mod account;
mod cgroup;
mod drain;
mod ends;
mod files;
mod first_process;
mod pipe;
mod process_table;
mod pty;
mod shell;
mod signal_names;
mod signals;
mod socket;
mod spawn;
mod tree;

pub(in crate::guest) use account::account;
pub(in crate::guest) use drain::Drainer;
pub use drain::drain_loop;
pub(in crate::guest) use ends::{InputEnd, OutputEnd};
pub(in crate::guest) use files::{create_private, create_private_dir, may_enter, open_private_append};
pub use files::{default_runs_dir, default_token_file};
pub(in crate::guest) use first_process::{WaitedFor, reap_orphans};
pub(in crate::guest) use pipe::{InputPipe, OutputPipe};
pub(in crate::guest) use process_table::start_time;
pub(in crate::guest) use pty::{Pty, PtySlave};
pub(in crate::guest) use shell::interpreter;
pub(in crate::guest) use signal_names::{SignalNumber, UnknownSignal, signal_name};
pub(in crate::guest) use signals::Signals;
pub(in crate::guest) use socket::{another_handle, connection_limit, keep_alive, set_reuse_address, set_v6_only};
pub(in crate::guest) use spawn::{leader_signal, raise_file_limit};
pub(in crate::guest) use tree::{CallTree, Ended, TreeHome};
