//! A process of ours that is watched over, and how it ended.

use std::{os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus};

use tokio::process::Command;

use super::signal_names::signal_name;

/// A program of ours to be started, out of reach of the keys of our terminal: what they ask for is asked of this process alone, which passes
/// it on.
pub(in crate::guest) fn ours_apart(program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the agent itself and no call's program")]
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// In words, to be put behind "by" or a colon.
pub(in crate::guest) fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let core = if status.core_dumped() { ", leaving a core" } else { "" };
            format!("signal {signal} ({}){core}", signal_name(signal.unsigned_abs()))
        }
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => status.to_string(),
    }
}

/// As a shell tells it.
pub(in crate::guest) fn exit_code(status: ExitStatus) -> u8 {
    let code = match (status.signal(), status.code()) {
        (Some(signal), _) => 128 + (signal & 0x7f),
        (None, code) => code.unwrap_or(1),
    };
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_people_know_them() {
        let of = ExitStatus::from_raw;
        assert_eq!(how_it_ended(of(9)), "signal 9 (KILL)");
        assert_eq!(how_it_ended(of(0x0b | 0x80)), "signal 11 (SEGV), leaving a core");
        assert_eq!(how_it_ended(of(125 << 8)), "exit code 125");
        assert_eq!((exit_code(of(9)), exit_code(of(3 << 8)), exit_code(of(0))), (137, 3, 0));
    }
}
