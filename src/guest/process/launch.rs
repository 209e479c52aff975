//! From a program to a command line: scripts go through files, never through arguments.

use std::{borrow::Cow, path::Path};

use super::{
    super::sys::{self, Interpreter},
    error::SpawnError,
    runs::RunFolder,
    spec::{Program, Spec},
};

/// Calls a script the way it would be called by hand, with the streams and exit codes that a caller can use.
///
/// It is a file of its own beside the script, so that `param()`, `using` and `#requires` stay first in theirs.
const POWERSHELL_LAUNCHER: &[u8] = include_bytes!("../../../assets/oem/launcher.ps1");

/// Turns a console to UTF-8 and becomes the `script.cmd` beside it.
const BATCH_LAUNCHER: &[u8] = include_bytes!("../../../assets/oem/launcher.cmd");

/// A byte-order mark: Windows PowerShell reads a script without one in the system's code page.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The program and its arguments; a script has been written into `folder`.
pub(super) fn command_line(spec: &Spec, folder: &RunFolder) -> Result<Vec<String>, SpawnError> {
    let (shell, source) = match &spec.program {
        Program::Argv(argv) => return Ok(argv.clone()),
        Program::Script { shell, source } => (*shell, source),
    };
    let write = |name, content: &[u8]| folder.write(name, content).map(|path| text(&path)).map_err(SpawnError::Files);
    match sys::interpreter(shell).map_err(SpawnError::NoInterpreter)? {
        Interpreter::Plain(program) => Ok(vec![program.to_owned(), write("script", source)?]),
        Interpreter::CommandProcessor => {
            write("script.cmd", &with_crlf(source))?;
            Ok(vec![write("launcher.cmd", BATCH_LAUNCHER)?])
        }
        Interpreter::PowerShell(program) => {
            let script = write("script.ps1", &[UTF8_MARK, source].concat())?;
            let launcher = write("launcher.ps1", POWERSHELL_LAUNCHER)?;
            let mut argv = vec![program, "-NoLogo", "-NoProfile"];
            if spec.terminal.is_none() {
                argv.push("-NonInteractive"); // who asks for a terminal can answer prompts
            }
            argv.extend(["-ExecutionPolicy", "Bypass", "-File", &launcher, &script]);
            if names_input(source) {
                argv.push("stdin");
            }
            Ok(argv.into_iter().map(str::to_owned).collect())
        }
    }
}

/// The folder's path is made of the agent's own names below a configured one, which is UTF-8 like every setting.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The command processor loses its place in batch files whose lines end otherwise.
fn with_crlf(source: &[u8]) -> Cow<'_, [u8]> {
    let bare = |at: usize| source[at] == b'\n' && (at == 0 || source[at - 1] != b'\r');
    if !(0..source.len()).any(bare) {
        return Cow::Borrowed(source);
    }
    let mut lines = Vec::with_capacity(source.len() + source.len() / 16);
    for (at, byte) in source.iter().enumerate() {
        if bare(at) {
            lines.push(b'\r');
        }
        lines.push(*byte);
    }
    Cow::Owned(lines)
}

/// Whether a PowerShell script may want its stdin in the automatic variable; to others stdin is left.
fn names_input(source: &[u8]) -> bool {
    const NAMES: [&[u8]; 2] = [b"$input", b"${input}"];
    NAMES.iter().any(|name| source.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_files_end_their_lines_as_the_command_processor_wants() {
        for (source, lines) in [
            ("", ""),
            ("a", "a"),
            ("a\nb", "a\r\nb"),
            ("\n\n", "\r\n\r\n"),
            ("a\r\nb\r\n", "a\r\nb\r\n"),
            ("a\r\nb\nc", "a\r\nb\r\nc"),
            ("a\rb", "a\rb"),
        ] {
            assert_eq!(with_crlf(source.as_bytes()), lines.as_bytes(), "{source:?}");
        }
    }

    #[test]
    fn stdin_is_taken_for_scripts_that_name_it() {
        for source in ["$input | sort", "@($Input)", "foreach ($x in ${INPUT}) { }"] {
            assert!(names_input(source.as_bytes()), "{source}");
        }
        for source in ["", "$inpu", "[Console]::In.ReadToEnd()", "input"] {
            assert!(!names_input(source.as_bytes()), "{source}");
        }
    }
}
