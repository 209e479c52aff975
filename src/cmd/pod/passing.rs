//! A program's output becomes ours: in order, at the pace of whoever reads it, and never lost in silence.

use std::io;

use super::{Exit, Failure, Printer};
use crate::{
    host::{
        Error, ErrorKind, ExecEvent, ExecStream,
        terminal::{Output, OutputStream},
    },
    protocol::{ExecResult, Gap},
};

/// Hands output on.
#[derive(Debug)]
pub(super) struct Passing {
    output: Output,
    printer: Printer,
    /// A terminal is in raw mode: a line of ours would stand askew in whatever is drawn there.
    quiet: bool,
    gaps: Vec<Gap>,
    lost: bool,
}

/// Why output is not handed on any more, before its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// It does not come any more, and why.
    Failed(Error),
    /// Nobody reads what is written.
    Unread,
    /// It cannot be written.
    Unwritten(io::Error),
    /// A signal came; the exit code that goes with it.
    Interrupted(Exit),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Halt {
    /// As the end of a command that leaves the guest as it is; `said` where a signal came.
    pub(super) fn end(self, said: &str) -> Result<Exit, Failure> {
        match self {
            Self::Failed(error) => Err(Failure::from(error).exiting(Exit::FAILED)),
            Self::Unread => Ok(Exit::UNREAD),
            Self::Unwritten(error) => {
                Err(Error::new(ErrorKind::File, "the output could not be written").with_source(error).into())
            }
            Self::Interrupted(exit) => Err(Failure::interrupted(said, exit)),
        }
    }
}

impl Passing {
    pub(super) fn new(printer: Printer) -> Result<Self, Error> {
        Ok(Self { output: Output::new()?, printer, quiet: false, gaps: Vec::new(), lost: false })
    }

    /// While true, what is to be said waits.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        if !quiet {
            for gap in std::mem::take(&mut self.gaps) {
                self.say(gap);
            }
        }
    }

    pub(super) async fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), Halt> {
        self.output.write(stream, bytes).await.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Halt::Unread,
            _ => Halt::Unwritten(error),
        })
    }

    pub(super) fn gap(&mut self, gap: Gap) {
        self.lost = true;
        if self.quiet {
            // a program that draws fast while its reader is stopped could leave many: the first and the last say it
            self.gaps.truncate(1);
            self.gaps.push(gap);
        } else {
            self.say(gap);
        }
    }

    fn say(&self, Gap { from, to }: Gap) {
        self.printer.error(&format!(
            "{} bytes of the output are lost: those from offset {from} to {to} were not kept in the guest",
            to.saturating_sub(from)
        ));
    }

    /// Hands on all that a stream has; none where the program runs on.
    pub(super) async fn all_of(&mut self, stream: &mut ExecStream) -> Result<Option<ExecResult>, Halt> {
        while let Some(event) = stream.next().await {
            match event? {
                ExecEvent::Started { .. } => {}
                ExecEvent::Stdout(bytes) => self.bytes(OutputStream::Stdout, &bytes).await?,
                ExecEvent::Stderr(bytes) => self.bytes(OutputStream::Stderr, &bytes).await?,
                ExecEvent::Gap(gap) => self.gap(gap),
                ExecEvent::Exit(result) => return Ok(Some(result)),
            }
        }
        Ok(None)
    }

    /// Where output was lost, no other code may hide it.
    pub(super) fn exit(&self, otherwise: Exit) -> Exit {
        if self.lost { Exit::FAILED } else { otherwise }
    }
}

/// Says what the exit code does not, and tells the code.
pub(super) fn conclude(result: &ExecResult, printer: Printer) -> Exit {
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
