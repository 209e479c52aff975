//! All that commands print: data on stdout, everything else on stderr.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::exit::Exit;

/// Where and how a command prints.
///
/// Its methods take `self` although most need nothing of it: whoever prints has been handed the right to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer {
    json: bool,
}

#[expect(clippy::unused_self, reason = "see the type")]
impl Printer {
    /// A printer for people, or for machines.
    pub(super) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether `--json` was given.
    pub(super) const fn is_json(self) -> bool {
        self.json
    }

    /// Whether progress may draw over itself: a terminal is on stderr and no machine reads along.
    #[cfg(unix)] // of the host's commands alone
    pub(super) fn is_interactive(self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// Whether data may have colours: a terminal shows it, and nobody has said no by `NO_COLOR`.
    #[cfg(unix)] // of the host's commands alone
    pub(super) fn is_colored(self) -> bool {
        !self.json && io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// A line of data on stdout.
    pub(super) fn line(self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Data on stdout, as it is.
    pub(super) fn bytes(self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        end_if_nobody_reads(stdout.write_all(bytes).and_then(|()| stdout.flush()));
    }

    /// The remote program's stderr, as it is.
    #[cfg(unix)] // of the host's commands alone
    pub(super) fn error_bytes(self, bytes: &[u8]) {
        let mut stderr = io::stderr().lock();
        end_if_nobody_reads(stderr.write_all(bytes).and_then(|()| stderr.flush()));
    }

    /// One JSON value on stdout, on one line.
    pub(super) fn json(self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(&text),
            Err(error) => self.error(&format!("could not write the answer as JSON: {error}")),
        }
    }

    /// A line for the person in front, on stderr.
    pub(super) fn note(self, text: &str) {
        // a command is no failure because nobody can read what it says beside
        drop(writeln!(io::stderr().lock(), "{text}"));
    }

    /// The line that says why the command failed.
    pub(super) fn error(self, text: &str) {
        // what comes from the guest or from an engine may hold line ends: the rule is one line
        let text =
            text.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let text = printable(&text);
        self.note(&format!("podlink: {text}"));
    }
}

/// From now on what the library warns of goes to stderr, a line each; `PODLINK_LOG` asks for more.
///
/// For commands of the host: the agent has a log of its own.
pub(super) fn show_warnings() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PODLINK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("podlink=warn"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    // fails only where there is one already, which is as good
    drop(subscriber.without_time().with_ansi(io::stderr().is_terminal()).try_init());
}

/// Text that came from a guest or another program, made safe for a terminal: no control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// A line of another program's log for the eye: no colours, no control characters, cut to what fits.
#[cfg(unix)] // of the host's commands alone
pub(super) fn plain(line: &str) -> String {
    const LONGEST: usize = 160;
    let text = without_control(line.trim());
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A line of another program's log for a terminal: no colours, no control characters.
#[cfg(unix)] // of the host's commands alone
pub(super) fn without_control(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // a control sequence: `ESC [`, parameters, and one letter
            '\u{1b}' if chars.as_str().starts_with('[') => {
                let _ = chars.next();
                let _ = chars.by_ref().find(|c| ('@'..='~').contains(c));
            }
            c => text.push(c),
        }
    }
    printable(&text)
}

/// A reader that went away (`podlink … | head`) is no failure and nothing to report; any other reason why data could
/// not be written is, whatever the command has done: its caller has not got the answer.
fn end_if_nobody_reads(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == io::ErrorKind::BrokenPipe {
        #[expect(clippy::exit, reason = "what a program without a handler for SIGPIPE would do")]
        std::process::exit(i32::from(Exit::UNREAD.0));
    }
    drop(writeln!(io::stderr().lock(), "podlink: the output could not be written: {error}"));
    #[expect(clippy::exit, reason = "no later success may hide it")]
    std::process::exit(i32::from(Exit::FAILED.0));
}
