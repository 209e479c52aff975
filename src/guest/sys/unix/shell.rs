//! Which program interprets which kind of script.

use crate::protocol::Shell;

/// The interpreter of `shell` here: its program, and whether it is a PowerShell; an `Err` says why there is none.
pub(crate) fn interpreter(shell: Shell) -> Result<(&'static str, bool), &'static str> {
    match shell {
        Shell::Auto | Shell::Sh => Ok(("sh", false)),
        Shell::Bash => Ok(("bash", false)),
        Shell::Pwsh => Ok(("pwsh", true)),
        Shell::Powershell => Err("Windows PowerShell runs on Windows only; PowerShell 7 is the shell `pwsh`"),
        Shell::Cmd => Err("the command processor `cmd` runs on Windows only; here the shell is `sh`"),
    }
}
