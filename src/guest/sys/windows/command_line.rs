//! From arguments to the one line of text that a Windows program gets, so that it reads the same arguments out of it.
//!
//! Most programs read it as `CommandLineToArgvW` does. The command processor reads a batch file's line in a way of its
//! own, in which `%PATH%`, `&` and quotes mean something: there each is written so that it means itself, and what cannot
//! be written that way is refused.

use std::{io, path::Path};

/// Characters besides letters and digits that mean nothing to the command processor.
const PLAIN_FOR_BATCH: &str = r"#$*+-./:?@\_";

/// Most UTF-16 units that the system takes, with the NUL at the end.
const MOST: usize = 32_767;

/// The line for a program; the first of `argv` is the name that it is called by.
pub(super) fn of_program(argv: &[String]) -> io::Result<Vec<u16>> {
    let Some((name, args)) = argv.split_first() else { return Err(refused("no program is named")) };
    // no backslash protects anything in a program's name, and none is needed: it holds no quotes
    if name.contains('"') {
        return Err(refused("a program's name holds no quotes"));
    }
    let mut line = format!("\"{name}\"");
    for arg in args {
        line.push(' ');
        push_arg(&mut line, arg);
    }
    finished(&line)
}

/// The line with which the command processor runs a batch file.
pub(super) fn of_batch(script: &Path, args: &[String]) -> io::Result<Vec<u16>> {
    let name = script.to_str().ok_or_else(|| refused("the batch file's path is no text"))?;
    // the command processor knows no such paths
    let name = name.strip_prefix(r"\\?\").unwrap_or(name);
    if name.contains(['"', '%', '\r', '\n']) {
        return Err(refused("the batch file's path holds a character that the command processor would take apart"));
    }
    // without the extensions (/e:ON) the trick below would not work; /d: no AutoRun; /v:OFF: `!` means itself
    let mut line = format!("cmd.exe /e:ON /v:OFF /d /c \"\"{name}\"");
    for arg in args {
        if arg.contains(['\r', '\n']) {
            return Err(refused("an argument for a batch file cannot hold a line break"));
        }
        line.push(' ');
        push_batch_arg(&mut line, arg);
    }
    line.push('"');
    finished(&line)
}

fn push_arg(line: &mut String, arg: &str) {
    let quoted = arg.is_empty() || arg.contains([' ', '\t']);
    if quoted {
        line.push('"');
    }
    let mut backslashes = 0;
    for c in arg.chars() {
        if c == '"' {
            // those before it are doubled, and one more makes it an ordinary character
            line.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        line.push(c);
    }
    if quoted {
        line.extend(std::iter::repeat_n('\\', backslashes));
        line.push('"');
    }
}

fn push_batch_arg(line: &mut String, arg: &str) {
    let special =
        |c: char| c.is_control() || (c.is_ascii() && !c.is_ascii_alphanumeric() && !PLAIN_FOR_BATCH.contains(c));
    // with a backslash at its end it would take the quote with it in a file that writes "%~1"
    let quoted = arg.is_empty() || arg.ends_with('\\') || arg.contains(special);
    if quoted {
        line.push('"');
    }
    let mut backslashes = 0;
    for c in arg.chars() {
        match c {
            '"' => {
                line.extend(std::iter::repeat_n('\\', backslashes));
                line.push('"');
            }
            // an empty part of a variable that is always there: what follows is no name any more
            '%' => line.push_str("%%cd:~,"),
            _ => {}
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        line.push(c);
    }
    if quoted {
        line.extend(std::iter::repeat_n('\\', backslashes));
        line.push('"');
    }
}

fn finished(line: &str) -> io::Result<Vec<u16>> {
    let line: Vec<u16> = line.encode_utf16().chain([0]).collect();
    if line.len() > MOST {
        return Err(refused(
            "the arguments are longer than the 32,766 characters that Windows takes; use stdin or a file",
        ));
    }
    Ok(line)
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: io::Result<Vec<u16>>) -> String {
        let line = line.unwrap();
        String::from_utf16(line.strip_suffix(&[0]).unwrap()).unwrap()
    }

    fn argv(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn arguments_are_quoted_where_they_have_to_be() {
        let line = |args: &[&str]| text(of_program(&argv(args)));
        assert_eq!(line(&["a b.exe"]), r#""a b.exe""#);
        assert_eq!(line(&["x", "", "a b", "\t", "%PATH%", "^", "&"]), "\"x\" \"\" \"a b\" \"\t\" %PATH% ^ &");
        assert_eq!(line(&["x", r#"a"b"#, r#"a\"b"#, r"a\b", r"c:\a\"]), r#""x" a\"b a\\\"b a\b c:\a\"#);
        assert_eq!(line(&["x", r"c:\a b\"]), r#""x" "c:\a b\\""#);
        assert!(of_program(&argv(&[r#"a"b"#])).is_err());
        assert!(of_program(&argv(&["x", &"y".repeat(MOST)])).is_err());
    }

    #[test]
    fn a_batch_files_arguments_mean_themselves() {
        let line = |args: &[&str]| text(of_batch(Path::new(r"C:\a b\x.cmd"), &argv(args)));
        assert_eq!(line(&[]), r#"cmd.exe /e:ON /v:OFF /d /c ""C:\a b\x.cmd"""#);
        assert!(line(&["a&b"]).ends_with(r#" "a&b"""#));
        assert!(line(&["%PATH%"]).ends_with(r#" "%%cd:~,%PATH%%cd:~,%"""#));
        assert!(line(&[r#"a"b"#]).ends_with(r#" "a""b"""#));
        assert!(of_batch(Path::new("x.cmd"), &argv(&["a\nb"])).is_err());
        assert!(of_batch(Path::new("100%.cmd"), &[]).is_err());
    }
}
