//! From a program to a command line: scripts go through files, never through arguments.

use std::path::Path;

use super::{
    super::sys,
    error::SpawnError,
    runs::RunFolder,
    spec::{Program, Spec},
};

/// Calls a script the way it would be called by hand, with the streams and exit codes that a caller can use.
///
/// It is a file of its own beside the script, so that `param()`, `using` and `#requires` stay first in theirs.
const POWERSHELL_LAUNCHER: &[u8] = include_bytes!("../../../assets/oem/launcher.ps1");

/// A byte-order mark: Windows PowerShell reads a script without one in the system's code page.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The program and its arguments; a script has been written into `folder`.
pub(super) fn command_line(spec: &Spec, folder: &RunFolder) -> Result<Vec<String>, SpawnError> {
    match &spec.program {
        Program::Argv(argv) => Ok(argv.clone()),
        Program::Script { shell, source } => {
            let (program, is_powershell) = sys::interpreter(*shell).map_err(SpawnError::NoInterpreter)?;
            if is_powershell {
                let marked = [UTF8_MARK, source].concat();
                let script = folder.write("script.ps1", &marked).map_err(SpawnError::Files)?;
                let launcher = folder.write("launcher.ps1", POWERSHELL_LAUNCHER).map_err(SpawnError::Files)?;
                let fixed = ["-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"];
                let mut argv = vec![program.to_owned()];
                argv.extend(fixed.map(str::to_owned));
                argv.extend([text(&launcher), text(&script)]);
                Ok(argv)
            } else {
                let script = folder.write("script", source).map_err(SpawnError::Files)?;
                Ok(vec![program.to_owned(), text(&script)])
            }
        }
    }
}

/// The folder's path is made of the agent's own names below a configured one, which is UTF-8 like every setting.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
