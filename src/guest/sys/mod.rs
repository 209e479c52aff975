//! What differs by operating system, behind the same function names for each.

mod ends;
mod exit;
mod interpreter;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as this_system;
#[cfg(windows)]
use windows as this_system;

pub(super) use ends::{InputEnd, OutputEnd};
pub(super) use exit::Exit;
pub(super) use interpreter::Interpreter;
pub(super) use this_system::{
    CallTree, Child, ChildEnd, Command, Drainer, Ended, FORBIDDEN_PORT, FileId, InputPipe, OutputPipe, Pty, PtySlave,
    SignalNumber, Signals, Step, TreeHome, UnknownSignal, WaitedFor, account, another_handle, connection_limit,
    create_private, create_private_dir, exit_code, file_id, file_id_at, foreign_text, how_it_ended, interpreter,
    is_held_open, keep_alive, may_enter, open_private_append, ours_apart, packages, raise_file_limit, reap_orphans,
    root_folder, set_reuse_address, set_v6_only, start_time, step_time, system_info, system_metrics, system_processes,
    system_sockets, time, truncate, try_lock, unlock,
};
pub(super) use this_system::{
    EXE_NAME, FIREWALL_FORGETS, NEEDS_SUPERVISOR, REPLACING_IS_RETRIED, check_trusted, close_firewall,
    create_program_dir, default_mode, default_program_dir, default_state_dir, exclude_from_scans, guard_program,
    hook_command, include_in_scans, is_in_a_call, make_executable, mode_name, mode_note, open_firewall, process_lives,
    register, registered, remove_program, replace_program, start_agent, unregister, without_window,
};
pub use this_system::{
    as_service, ask_to_stop, default_install_log, default_runs_dir, default_token_file, drain_loop, hold_loop,
    interrupt_process, use_terminal,
};
