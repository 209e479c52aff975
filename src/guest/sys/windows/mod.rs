//! The Windows half.

mod account;
mod clock;
mod command;
mod command_line;
mod console;
mod create_process;
mod disks;
mod drain;
mod environment;
mod files;
mod first_process;
mod handle;
mod helper;
mod install;
mod interrupt;
mod job;
mod machine;
mod network;
mod nt;
mod overlapped;
mod packages;
mod pipe;
mod process_list;
mod process_look;
mod process_table;
mod processes;
mod program;
mod pty;
mod registry;
mod service;
mod shell;
mod signal_names;
mod signals;
mod socket;
mod sockets;
mod spawn;
mod supervised;
mod terminal;
mod text;
mod time_text;
mod tree;
mod users;
mod wait;

pub(in crate::guest) use account::account;
pub(in crate::guest) use clock::{Step, step_time, time};
pub(in crate::guest) use command::{Child, ChildEnd, Command};
pub(in crate::guest) use drain::Drainer;
pub use drain::{drain_loop, hold_loop};
pub(in crate::guest) use files::{
    FileId, create_private, create_private_dir, file_id, file_id_at, is_held_open, may_enter, open_private_append,
    root_folder, truncate, try_lock, unlock,
};
pub use files::{default_install_log, default_runs_dir, default_token_file};
pub(in crate::guest) use first_process::{WaitedFor, reap_orphans};
pub(in crate::guest) use install::{
    EXE_NAME, FIREWALL_FORGETS, NEEDS_SUPERVISOR, REPLACING_IS_RETRIED, check_trusted, close_firewall,
    create_program_dir, default_mode, default_program_dir, default_state_dir, exclude_from_scans, guard_program,
    hook_command, include_in_scans, is_in_a_call, make_executable, mode_name, mode_note, open_firewall, register,
    registered, remove_program, replace_program, start_agent, unregister, without_window,
};
pub use interrupt::interrupt_process;
pub(in crate::guest) use machine::{system_info, system_metrics};
pub(in crate::guest) use packages::packages;
pub(in crate::guest) use pipe::{InputPipe, OutputPipe};
pub(in crate::guest) use process_table::{process_lives, start_time};
pub(in crate::guest) use processes::system_processes;
pub(in crate::guest) use pty::{Pty, PtySlave};
pub use service::as_service;
pub(in crate::guest) use shell::interpreter;
pub(in crate::guest) use signal_names::{SignalNumber, UnknownSignal};
pub(in crate::guest) use signals::Signals;
pub use signals::ask_to_stop;
pub(in crate::guest) use socket::{
    FORBIDDEN_PORT, another_handle, connection_limit, keep_alive, set_reuse_address, set_v6_only,
};
pub(in crate::guest) use sockets::system_sockets;
pub(in crate::guest) use spawn::raise_file_limit;
pub(in crate::guest) use supervised::{exit_code, how_it_ended, ours_apart};
pub use terminal::use_terminal;
pub(in crate::guest) use text::foreign_text;
pub(in crate::guest) use tree::{CallTree, Ended, TreeHome};

/// The agent's end of a pipe or terminal, for another process to read from.
pub(super) type OwnedEnd = std::os::windows::io::OwnedHandle;
