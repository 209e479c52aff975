//! The arguments of `podlink pod exec`, and the request that they make.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::super::{Failure, PodChoice, detach_keys::DetachKeys, seconds, seconds_or_none};
use crate::{
    host::{Error, ErrorKind},
    protocol::{ExecRequest, MAX_JSON_BODY, Shell, TimeoutSec},
};

/// Run a script or a program in the guest
///
/// Its stdout and stderr come as they are written, and its exit code becomes this command's. A reader that is slow
/// slows the program; one that goes away (`| head -1`) ends it, as Ctrl-C does. Codes: 124 the program timed out, 125
/// podlink itself failed or output was lost, 130 Ctrl-C, 141 nobody reads; codes above 255 are cut to their low byte
/// and shown whole on stderr.
///
/// Without -i this command's stdin is not touched. With -t on a terminal all keys go to the program, Ctrl-C too; the
/// detach keys, ctrl-p ctrl-q, let it run on as a job.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod exec 'Get-Date'                       a script, in the guest's own shell
  podlink pod exec --shell cmd 'dir C:\\'            in another one
  podlink pod exec --script-file setup.ps1          a script of any length, from a file
  podlink pod exec -- notepad.exe 'C:\\a b.txt'      a program and its arguments, without a shell
  podlink pod exec -i 'tar x' < files.tar           with input, as it comes
  podlink pod exec -e LANG=C -w /srv -- ls -la      with a variable, in a folder
  podlink pod exec -it -- vim notes.txt             on a terminal
  podlink pod exec --detach 'make -j8'              a job: see `podlink pod ps`, `logs`, `attach`, `wait`, `kill`
  podlink pod exec --session build 'make install'   after all that was given to this session before
  podlink pod exec --wait 600 'hostname'            as soon as the guest is ready
  podlink pod exec --json 'exit 7'                  one JSON object: rc, stdout, stderr, …")]
pub(in crate::cmd::pod) struct ExecArgs {
    /// The script
    #[arg(value_name = "SCRIPT", conflicts_with = "argv")]
    pub(super) script: Option<String>,
    /// Read the script from a file, or with `-` from this command's own stdin; up to 8 MiB
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["script", "argv"])]
    pub(super) script_file: Option<PathBuf>,
    /// A program and its arguments, after `--`
    #[arg(value_name = "PROG", last = true)]
    pub(super) argv: Vec<String>,
    #[command(flatten)]
    pub(super) pod: PodChoice,
    /// The script's interpreter: auto, powershell, pwsh, cmd, sh or bash
    #[arg(long, value_name = "SHELL", default_value = "auto", value_parser = shell, conflicts_with = "argv")]
    pub(super) shell: Shell,
    /// Seconds until it is killed, with everything it started; without it, or with 0, there is no limit; with --json it
    /// is 60, and 0 is refused
    #[arg(long, value_name = "SECS", value_parser = seconds_or_none)]
    pub(super) timeout: Option<f64>,
    /// Set a variable, or hand over one of this environment (can be repeated)
    #[arg(long, short, value_name = "KEY[=VALUE]")]
    pub(super) env: Vec<String>,
    /// Start from an empty environment
    #[arg(long)]
    pub(super) env_clear: bool,
    /// The working directory in the guest
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// What it reads on stdin, up to 8 MiB sent with the call: a file, or `-` for this command's own stdin
    #[arg(long, value_name = "FILE|-")]
    pub(super) stdin: Option<PathBuf>,
    /// Pass this command's stdin on as it comes, until its end
    #[arg(long, short, conflicts_with_all = ["stdin", "json"])]
    pub(super) interactive: bool,
    /// Give it a terminal; what is typed on this one goes to it
    #[arg(long, short, conflicts_with_all = ["stdin", "json"])]
    pub(super) tty: bool,
    /// With -t: keys that leave it running as a job: characters or ctrl-X, with commas between, or `none`
    #[arg(long, value_name = "KEYS", default_value = DetachKeys::DEFAULT)]
    pub(super) detach_keys: DetachKeys,
    /// Do not stay: print the job's id once it runs; with -i its stdin stays open for `podlink pod attach`
    #[arg(long, short)]
    pub(super) detach: bool,
    /// Run it after all that was given to the session of this name before
    #[arg(long, value_name = "NAME", value_parser = session)]
    pub(super) session: Option<String>,
    /// Fail rather than wait for a turn in the session or for a free slot
    #[arg(long)]
    pub(super) no_queue: bool,
    /// Wait this many seconds for the guest to be ready, then run it once
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(super) wait: Option<f64>,
    /// Print the result as one JSON object, once it has ended; with --detach the job's ids
    #[arg(long)]
    pub(in crate::cmd::pod) json: bool,
}

fn shell(text: &str) -> Result<Shell, String> {
    serde_json::from_value(text.into()).map_err(|_| "one of auto, powershell, pwsh, cmd, sh, bash".to_owned())
}

/// The name of a session.
pub(in crate::cmd::pod) fn session(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&text.len()) && text.chars().all(is_name) {
        Ok(text.to_owned())
    } else {
        Err("a session's name is 1 to 64 letters, digits, `_` and `-`".to_owned())
    }
}

/// What clap cannot say well enough.
pub(super) fn check(args: &ExecArgs) -> Result<(), Failure> {
    if let Some(file) = &args.script_file {
        let twice = args.interactive || args.tty || args.stdin.as_deref() == Some(Path::new("-"));
        return if file == Path::new("-") && twice {
            Err(Failure::usage(
                "stdin holds the script: it cannot be the program's input as well; name a --script-file",
            ))
        } else {
            Ok(())
        };
    }
    let hint = match args.script.as_deref() {
        Some("-") => "`-` is no script",
        None if args.argv.is_empty() && args.stdin.is_some() => "--stdin is the input of a script, which is missing",
        None if args.argv.is_empty() => "nothing to run",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{hint}; give the script as one argument, a program as `-- PROG ARGS`, a script file as `--script-file FILE`"
    )))
}

/// A line that would be right where something else than options follows the script, as in `exec ls -la`; or none where
/// the words are of another command.
pub(in crate::cmd) fn tip(words: &[String]) -> Option<String> {
    let at = words.windows(2).position(|pair| pair == ["pod", "exec"])? + 2;
    let given = &words[at..];
    if given.first().is_none_or(|word| word.starts_with('-')) {
        return Some("a program and its arguments go behind `--`: `podlink pod exec -- PROG ARGS`".to_owned());
    }
    let quoted: Vec<String> = given.iter().map(|word| quoted(word)).collect();
    Some(format!(
        "`podlink pod exec -- {}` runs a program with its arguments; a script is one argument, in quotes",
        quoted.join(" ")
    ))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The call as the wire has it; its time limit and what depends on the manner of the call are the caller's.
pub(super) fn request_of(args: ExecArgs) -> Result<ExecRequest, Failure> {
    let mut env = BTreeMap::new();
    for given in args.env {
        let (key, value) = match given.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => match std::env::var(&given) {
                Ok(value) => (given, value),
                Err(_) => return Err(Failure::usage(format!("--env {given}: this environment has no such text"))),
            },
        };
        if key.is_empty() {
            return Err(Failure::usage("--env: a variable needs a name"));
        }
        env.insert(key, value);
    }
    let stdin = args.stdin.as_deref().map(|path| read(path, "the input for stdin")).transpose()?;
    let script = match &args.script_file {
        Some(path) => Some(read(path, "the script")?),
        None => args.script.map(String::into_bytes),
    };
    Ok(ExecRequest {
        script: script.map(|script| STANDARD.encode(script)),
        argv: if args.argv.is_empty() { None } else { Some(args.argv) },
        shell: args.shell,
        timeout_sec: args.timeout.map(TimeoutSec::Seconds),
        cwd: args.cwd,
        env: if env.is_empty() { None } else { Some(env) },
        env_clear: args.env_clear,
        stdin: stdin.map(|bytes| STANDARD.encode(bytes)),
        session: args.session,
        queue: !args.no_queue,
        ..ExecRequest::default()
    })
}

/// What goes with the call; no more than one can carry is read.
fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let cap = MAX_JSON_BODY as u64;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(cap + 1).read_to_end(&mut bytes)
    } else {
        fs_err::File::open(path).and_then(|file| file.take(cap + 1).read_to_end(&mut bytes))
    };
    match read {
        Ok(count) if count as u64 > cap => {
            Err(Error::new(ErrorKind::Rejected, format!("{what} is over what a call can carry, {cap} bytes in all"))
                .with_hint("pass input on as it comes, with `-i` and `< FILE`")
                .into())
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::new(ErrorKind::File, format!("could not read {what}")).with_source(error).into()),
    }
}
