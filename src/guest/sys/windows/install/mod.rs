//! What an installation sets on this system: the registry's Run key or a service, the firewall, Defender, access lists.

mod autostart;
mod firewall;
mod places;
mod program;
mod registry;
mod service;

pub(in crate::guest) use autostart::{
    NEEDS_SUPERVISOR, default_mode, mode_name, mode_note, register, registered, start_agent, unregister,
};
pub(in crate::guest) use firewall::{
    FIREWALL_FORGETS, close_firewall, exclude_from_scans, include_in_scans, open_firewall,
};
pub(in crate::guest) use places::{EXE_NAME, REPLACING_IS_RETRIED, default_program_dir, default_state_dir};
pub(in crate::guest) use program::{
    check_trusted, create_program_dir, guard_program, hook_command, is_in_a_call, make_executable, remove_program,
    replace_program, without_window,
};
