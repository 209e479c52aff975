//! Which program interprets which kind of script.

use super::super::interpreter::Interpreter;
use crate::protocol::Shell;

/// The interpreter of `shell` here; an `Err` says why there is none.
pub(crate) fn interpreter(shell: Shell) -> Result<Interpreter, &'static str> {
    match shell {
        Shell::Auto | Shell::Powershell => Ok(Interpreter::PowerShell("powershell")),
        Shell::Pwsh => Ok(Interpreter::PowerShell("pwsh")),
        Shell::Cmd => Ok(Interpreter::CommandProcessor),
        Shell::Sh | Shell::Bash => Err(
            "`sh` and `bash` are no part of Windows; here the shells are `powershell`, `pwsh` and `cmd`; a bash that \
                 is installed is run as a program, by its path",
        ),
    }
}
