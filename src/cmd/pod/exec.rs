//! `podlink pod exec`.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, seconds, signal::Interrupts};
use crate::{
    host::{self, AgentClient, ClientSettings, Error, ErrorKind, ExecOutcome, Pod, RequestId, WaitSettings},
    protocol::{ErrorBody, ExecRequest, MAX_JSON_BODY, Shell, TimeoutSec},
};

/// Run a script or a program in the guest
///
/// Its stdout, stderr and exit code become those of this command. Codes: 124 the program timed out, 125 podlink itself
/// failed, 130 Ctrl-C; codes above 255 are cut to their low byte and shown whole on stderr.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod exec 'Get-Date'                       a script, in the guest's own shell
  podlink pod exec --shell cmd 'dir C:\\'            in another one
  podlink pod exec -- notepad.exe 'C:\\a b.txt'      a program and its arguments, without a shell
  podlink pod exec --stdin - 'cat' < file           with input
  podlink pod exec --wait 600 'hostname'            as soon as the guest is ready
  podlink pod exec --json 'exit 7'                  one JSON object: rc, stdout, stderr, …")]
pub(super) struct ExecArgs {
    /// The script
    #[arg(value_name = "SCRIPT", conflicts_with = "argv")]
    script: Option<String>,
    /// A program and its arguments, after `--`
    #[arg(value_name = "PROG", last = true)]
    argv: Vec<String>,
    #[command(flatten)]
    pod: PodChoice,
    /// The script's interpreter: auto, powershell, pwsh, cmd, sh or bash
    #[arg(long, value_name = "SHELL", default_value = "auto", value_parser = shell, conflicts_with = "argv")]
    shell: Shell,
    /// Seconds until it is killed, with everything it started; 60 where not given
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<f64>,
    /// Set a variable, or hand over one of this environment (can be repeated)
    #[arg(long, value_name = "KEY[=VALUE]")]
    env: Vec<String>,
    /// Start from an empty environment
    #[arg(long)]
    env_clear: bool,
    /// The working directory in the guest
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// What it reads on stdin: a file, or `-` for this command's own stdin
    #[arg(long, value_name = "FILE|-")]
    stdin: Option<PathBuf>,
    /// Wait this many seconds for the guest to be ready, then run it once
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<f64>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

fn shell(text: &str) -> Result<Shell, String> {
    serde_json::from_value(text.into()).map_err(|_| "one of auto, powershell, pwsh, cmd, sh, bash".to_owned())
}

pub(super) fn run(args: ExecArgs, printer: Printer) -> Outcome {
    check(&args)?;
    let pod = args.pod.load()?;
    let wait = args.wait;
    let request = request_of(args)?;
    let client = AgentClient::for_pod(&pod, ClientSettings::DEFAULT)?;
    match block_on(call(&pod, &client, &request, wait)) {
        Ok(outcome) => Ok(deliver(&outcome, printer)),
        Err(Stopped::Waiting(error)) => Err(error.into()),
        Err(Stopped::Failed(error)) => {
            if let (false, Some(answer)) = (printer.is_json(), error.answer()) {
                deliver_partial(answer, printer);
            }
            // every other code could be the program's own
            Err(Failure::from(error).exiting(Exit::FAILED))
        }
        Err(Stopped::Interrupted(failure)) => Err(failure),
    }
}

/// Why there is no outcome.
enum Stopped {
    /// `--wait` came to no good end: it has the codes of `wait-ready`.
    Waiting(Error),
    /// The call failed.
    Failed(Error),
    /// A signal came.
    Interrupted(Failure),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

async fn call(
    pod: &Pod,
    client: &AgentClient,
    request: &ExecRequest,
    wait: Option<f64>,
) -> Result<ExecOutcome, Stopped> {
    let mut interrupts = Interrupts::catch()?;
    if let Some(wait) = wait {
        let settings = WaitSettings { timeout: Duration::from_secs_f64(wait), ..WaitSettings::DEFAULT };
        tokio::select! {
            ready = host::wait_ready(client, || host::engine::state(pod), &settings, |_| {}) => {
                drop(ready.map_err(Stopped::Waiting)?);
            }
            exit = interrupts.next() => {
                return Err(Stopped::Interrupted(Failure::interrupted("interrupted before the call was made", exit)));
            }
        }
    }
    let id = RequestId::generate()?;
    let exit = tokio::select! {
        outcome = client.exec_as(&id, request) => return Ok(outcome?),
        exit = interrupts.next() => exit,
    };
    // a second signal does not wait for the agent
    let ended = tokio::select! {
        ended = client.cancel(&id) => ended,
        _ = interrupts.next() => Ok(false),
    };
    let said = match ended {
        Ok(true) => "interrupted; the call was ended in the guest",
        Ok(false) => "interrupted; whether the call had begun in the guest is not known",
        Err(_) => "interrupted; the agent could not be told, it ends the call by itself in a few seconds",
    };
    Err(Stopped::Interrupted(Failure::interrupted(said, exit)))
}

/// What clap cannot say well enough.
fn check(args: &ExecArgs) -> Result<(), Failure> {
    let hint = match args.script.as_deref() {
        Some("-") => "a script is not read from stdin",
        None if args.argv.is_empty() && args.stdin.is_some() => "--stdin is the input of a script, which is missing",
        None if args.argv.is_empty() => "nothing to run",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{hint}; give the script as one argument, a program as `-- PROG ARGS`, a script file as `\"$(cat FILE)\"`"
    )))
}

/// The call as the wire has it.
fn request_of(args: ExecArgs) -> Result<ExecRequest, Failure> {
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
    let stdin = args.stdin.as_deref().map(read_input).transpose()?;
    Ok(ExecRequest {
        script: args.script.map(|script| STANDARD.encode(script)),
        argv: if args.argv.is_empty() { None } else { Some(args.argv) },
        shell: args.shell,
        timeout_sec: args.timeout.map(TimeoutSec::Seconds),
        cwd: args.cwd,
        env: if env.is_empty() { None } else { Some(env) },
        env_clear: args.env_clear,
        stdin: stdin.map(|bytes| STANDARD.encode(bytes)),
        ..ExecRequest::default()
    })
}

/// The input of the program; no more than a call can carry is read.
fn read_input(path: &Path) -> Result<Vec<u8>, Failure> {
    let cap = MAX_JSON_BODY as u64;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(cap + 1).read_to_end(&mut bytes)
    } else {
        fs_err::File::open(path).and_then(|file| file.take(cap + 1).read_to_end(&mut bytes))
    };
    match read {
        Ok(count) if count as u64 > cap => Err(Error::new(
            ErrorKind::Rejected,
            format!("the input for stdin is over what a call can carry, {cap} bytes in all"),
        )
        .with_hint("lay the input into the guest first and read it there")
        .into()),
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::new(ErrorKind::File, "could not read the input for stdin").with_source(error).into()),
    }
}

/// Prints the outcome and tells the exit code.
fn deliver(outcome: &ExecOutcome, printer: Printer) -> Exit {
    let result = &outcome.result;
    if printer.is_json() {
        printer.json(result);
    } else {
        printer.bytes(&outcome.stdout);
        printer.error_bytes(&outcome.stderr);
    }
    if result.timed_out {
        printer.error("the program timed out and was killed");
    }
    if result.truncated {
        printer.error(&format!(
            "the output was cut: of {} bytes of stdout and {} of stderr only the first are here",
            result.stdout_bytes, result.stderr_bytes
        ));
    }
    if !result.survivors.is_empty() {
        printer.error(&format!("processes of the call are still alive in the guest: {:?}", result.survivors));
    }
    if result.timed_out {
        return Exit::REMOTE_TIMED_OUT;
    }
    if Exit::is_shortened(result.rc) {
        printer.error(&format!("the program's exit code was {}", result.rc));
    }
    Exit::of_remote(result.rc)
}

/// Prints what a call had put out before the agent ended it.
fn deliver_partial(answer: &ErrorBody, printer: Printer) {
    let bytes = |text: Option<&String>, encoded: Option<&String>| {
        let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        decoded.or_else(|| text.map(|text| text.clone().into_bytes())).unwrap_or_default()
    };
    printer.bytes(&bytes(answer.stdout.as_ref(), answer.stdout_b64.as_ref()));
    printer.error_bytes(&bytes(answer.stderr.as_ref(), answer.stderr_b64.as_ref()));
}
