//! The executable: hands over to [`podlink::cmd`] and ends with its exit code.

// of the subsystem that gets no console of its own: no window flashes where the agent starts at log-on
#![cfg_attr(windows, windows_subsystem = "windows")]

fn main() -> std::process::ExitCode {
    podlink::cmd::main()
}
