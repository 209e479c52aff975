//! The command line: one file a command, each with its clap arguments and a `run`.
//!
//! No sockets, no processes, no YAML here: commands resolve what they were given, call [`host`](crate::host) or
//! [`guest`](crate::guest), and print.

mod agent;
#[cfg(unix)]
mod demo;
mod exit;
mod output;
#[cfg(unix)]
mod pod;
mod report;
#[cfg(unix)]
mod setup;

use clap::{Parser, Subcommand};

pub use exit::Exit;
use output::Printer;
use report::Failure;

/// How a command ends: with a code, or with a failure to be reported.
type Outcome = Result<Exit, Failure>;

/// Make a VM inside a container scriptable from its host
#[derive(Debug, Parser)]
#[command(
    name = "podlink",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  podlink demo                                    see it work, on a temporary pod of this machine
  podlink setup && podlink pod up                 write the Windows pod and start it
  podlink pod wait-ready                          wait until the guest takes calls
  podlink pod exec 'Get-Process | Out-String'     run a script in it"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(unix)]
    Setup(setup::SetupArgs),
    #[cfg(unix)]
    Pod(pod::PodArgs),
    Agent(agent::AgentArgs),
    #[cfg(unix)]
    Demo(demo::DemoArgs),
}

/// An error of clap's, whose own tip for a program's options leads nowhere.
#[cfg(unix)]
fn with_tip(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::SuggestedArg).is_none()
        && let Some(tip) = pod::exec_tip(&words)
    {
        drop(error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()])));
    }
    error
}

#[cfg(unix)]
fn parse() -> Result<Cli, clap::Error> {
    Cli::try_parse().map_err(with_tip)
}

#[cfg(windows)]
fn parse() -> Result<Cli, clap::Error> {
    Cli::try_parse()
}

/// Parses the command line, runs the command, reports its failure, and returns the exit code.
pub fn main() -> std::process::ExitCode {
    crate::guest::use_terminal();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") => {
            // all of clap's text: its lines say what, where and how it would be right
            let text = error.render().to_string();
            return Failure::usage(text.trim().trim_start_matches("error: ")).report(Printer::new(true)).into();
        }
        Err(error) => error.exit(),
    };
    if !matches!(cli.command, Command::Agent(_)) {
        output::show_warnings();
    }
    let (json, outcome) = match cli.command {
        #[cfg(unix)]
        Command::Setup(args) => (args.json, setup::run(args)),
        #[cfg(unix)]
        Command::Pod(args) => (args.is_json(), pod::run(args)),
        Command::Agent(args) => (args.is_json(), agent::run(args)),
        #[cfg(unix)]
        Command::Demo(args) => (false, demo::run(&args)),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        if failure.is_of_signal() {
            end_soon(failure.exit());
        }
        failure.report(Printer::new(json))
    });
    exit.into()
}

/// Whoever asked the command to end does not wait for a terminal that takes no more words.
fn end_soon(exit: Exit) {
    const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(2);
    let watch = std::thread::Builder::new().name("end-soon".into()).spawn(move || {
        std::thread::sleep(LAST_WORDS);
        #[expect(clippy::exit, reason = "the main thread hangs in a write to the terminal")]
        std::process::exit(exit.0.into());
    });
    drop(watch); // where there is no thread the words are waited for
}
