//! A process of ours that is watched over, and how it ended.

use std::{path::Path, process::ExitStatus};

use tokio::process::Command;
use windows_sys::Win32::System::Threading::CREATE_NO_WINDOW;

/// Exit codes from here on are the system's own: NTSTATUS values of a process that was ended by an exception.
const FIRST_STATUS: u32 = 0xC000_0000;

/// A program of ours to be started without a window, in a console of its own, and so out of reach of the keys of ours: what they ask for is
/// asked of this process alone, which passes it on.
///
/// Not in a group of its own, which would have it and all its calls ignore Ctrl-C.
pub(in crate::guest) fn ours_apart(program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the agent itself and no call's program")]
    let mut command = Command::new(program);
    command.creation_flags(CREATE_NO_WINDOW);
    command
}

/// In words, to be put behind "by" or a colon.
pub(in crate::guest) fn how_it_ended(status: ExitStatus) -> String {
    match status.code().map(i32::cast_unsigned) {
        Some(code @ FIRST_STATUS..) => format!("exit code 0x{code:08X}"),
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

/// What fits of it, and never 0 for a failure.
pub(in crate::guest) fn exit_code(status: ExitStatus) -> u8 {
    match status.code() {
        Some(code) => u8::try_from(code).unwrap_or(1),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::os::windows::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn ends_are_told_as_people_know_them() {
        let of = ExitStatus::from_raw;
        assert_eq!(how_it_ended(of(0xC000_0005)), "exit code 0xC0000005");
        assert_eq!(how_it_ended(of(125)), "exit code 125");
        assert_eq!((exit_code(of(0xC000_0005)), exit_code(of(3)), exit_code(of(0))), (1, 3, 0));
    }
}
