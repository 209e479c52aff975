//! Which program interprets which kind of script, and what text is made of output that is none.

use super::super::interpreter::Interpreter;
use crate::protocol::Shell;

/// The interpreter of `shell` here; an `Err` says why there is none.
pub(crate) fn interpreter(shell: Shell) -> Result<Interpreter, &'static str> {
    match shell {
        Shell::Auto | Shell::Sh => Ok(Interpreter::Plain("sh")),
        Shell::Bash => Ok(Interpreter::Plain("bash")),
        Shell::Pwsh => Ok(Interpreter::PowerShell("pwsh")),
        Shell::Powershell => Err("Windows PowerShell runs on Windows only; PowerShell 7 is the shell `pwsh`"),
        Shell::Cmd => Err("the command processor `cmd` runs on Windows only; here the shell is `sh`"),
    }
}

/// The text of a line that is not UTF-8: nothing else can be known of it here.
pub(crate) fn foreign_text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}
