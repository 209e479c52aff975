//! A program's output becomes ours: in order, at the pace of whoever reads it, and never lost in silence.

use std::{io, time::Duration};

use super::{Exit, Failure, Printer};
use crate::{
    host::{
        Error, ErrorKind, ExecEvent, ExecStream,
        terminal::{Modes, Output, OutputStream},
    },
    protocol::{ExecResult, Gap},
};

/// Hands output on.
#[derive(Debug)]
pub(super) struct Passing {
    output: Output,
    printer: Printer,
    /// Where a terminal is in raw mode: what the program has made of it. A line of ours would stand askew there.
    screen: Option<Modes>,
    gaps: Vec<Gap>,
    lost: bool,
    /// The oldest that there is was asked for, and nothing has come yet.
    from_oldest: bool,
    /// As many bytes had gone before it, which is still to be said.
    forgotten: Option<u64>,
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
        Ok(Self {
            output: Output::new()?,
            printer,
            screen: None,
            gaps: Vec::new(),
            lost: false,
            from_oldest: false,
            forgotten: None,
        })
    }

    /// The oldest output that is kept was asked for: what was before it is no loss.
    pub(super) const fn begins_with_oldest(&mut self) {
        self.from_oldest = true;
    }

    /// From now on the terminal is the program's: what is to be said waits.
    pub(super) fn begin_screen(&mut self) {
        self.screen = Some(Modes::default());
    }

    /// Undoes what the program has left of itself on the terminal.
    pub(super) fn leave_screen(&mut self, ended: bool) {
        let Some(modes) = self.screen.take() else { return };
        // the program's own end is shown as it left it; what podlink says then begins on a line of its own
        let line = if !ended && modes.is_midway() { "\r\n" } else { "" };
        self.output.write_last(OutputStream::Stdout, format!("{}{line}", modes.undo()).as_bytes());
    }

    /// Says what had to wait.
    pub(super) fn say_gaps(&mut self) {
        self.say_forgotten();
        for gap in std::mem::take(&mut self.gaps) {
            self.say(gap);
        }
    }

    pub(super) async fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), Halt> {
        self.from_oldest = false;
        if let Some(modes) = &mut self.screen {
            modes.take(bytes);
        }
        self.output.write(stream, bytes).await.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Halt::Unread,
            _ => Halt::Unwritten(error),
        })
    }

    pub(super) fn gap(&mut self, gap: Gap) {
        if std::mem::take(&mut self.from_oldest) && gap.from == 0 {
            self.forgotten = Some(gap.to);
            if self.screen.is_none() {
                self.say_forgotten();
            }
            return;
        }
        self.lost = true;
        if self.screen.is_some() {
            // a program that draws fast while its reader is stopped could leave many: the first and the last say it
            self.gaps.truncate(1);
            self.gaps.push(gap);
        } else {
            self.say(gap);
        }
    }

    fn say_forgotten(&mut self) {
        if let Some(count) = self.forgotten.take() {
            self.printer.note(&format!("podlink: the first {count} bytes are no longer kept"));
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

/// A number of processes.
pub(super) fn processes(count: u64) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// Says what the exit code does not, and tells the code.
pub(super) fn conclude(result: &ExecResult, printer: Printer) -> Exit {
    if result.timed_out {
        let seconds = Duration::from_millis(result.duration_ms).as_secs_f64();
        printer.error(&format!(
            "the program timed out after {seconds:.1} s and was killed ({})",
            processes(result.killed)
        ));
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
        printer.error(&format!("the program's exit code was {}", Exit::in_words(result.rc)));
    }
    Exit::of_remote(result.rc)
}
