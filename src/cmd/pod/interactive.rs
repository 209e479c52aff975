//! Talking with a program in the guest: what is typed goes there, what it says comes here.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use super::{
    detach_keys::{DetachKeys, Detector, Typed},
    passing::{Halt, Passing},
    signal::Interrupts,
};
use crate::{
    host::{
        AttachEvent, Attached, AttachedInput, AttachedOutput, Error, ErrorKind, PodName,
        terminal::{self, Input, OutputStream, RawMode, Resizes, Resumed, Size},
    },
    protocol::{AttachRequest, ExecRequest, ExecResult, Pty},
};

/// After input could not be passed on: until the program's end is told, which is the reason in most cases.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Input that was passed on longer than this before a connection was found to be lost has arrived: a peer that is gone is
/// noticed sooner.
const ARRIVED: Duration = Duration::from_mins(2);

/// Our end of it.
#[derive(Debug)]
pub(super) struct Console {
    /// What the program reads.
    pub(super) stdin: Stdin,
    /// The program has a terminal.
    pub(super) terminal: bool,
    /// The keys that end it here and not there.
    pub(super) keys: DetachKeys,
}

/// What a program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stdin {
    /// Our stdin, which is not touched in the other cases.
    Ours,
    /// Nothing: its end at once.
    Nothing,
    /// Whatever others give it.
    Others,
}

/// How it ends where nothing goes wrong.
#[derive(Debug)]
pub(super) enum End {
    /// The program has ended.
    Exit(ExecResult),
    /// It runs on without us.
    Detached,
}

/// A call in a terminal that is as ours is.
pub(super) fn in_terminal(exec: ExecRequest) -> AttachRequest {
    let mut pty = Pty::default();
    if let Some(Size { rows, cols }) = terminal::size() {
        (pty.rows, pty.cols) = (rows.into(), cols.into());
    }
    if let Ok(term) = std::env::var("TERM")
        && !term.is_empty()
    {
        pty.term = term;
    }
    AttachRequest { exec, pty: Some(pty) }
}

/// What is said when a program has been left to itself.
pub(super) fn detached_note(process_id: &str, pod: &PodName) -> String {
    format!("podlink: {process_id} runs on; come back with `podlink pod attach{} {process_id}`", pod.flag())
}

/// Talks until the program ends, the keys to leave it come, or a signal.
///
/// Over connections that break, for as long as the agent keeps the call. What was typed while there was none is not sent
/// again; where input comes from a pipe, nothing of it may be missing, and it ends there.
///
/// The terminal is as it was before whenever this returns. `told` is the size that the program's terminal has.
pub(super) async fn talk(
    attached: Attached,
    console: &Console,
    told: Option<Size>,
    passing: &mut Passing,
    interrupts: &mut Interrupts,
) -> Result<End, Halt> {
    let raw = if console.terminal && console.stdin == Stdin::Ours {
        interrupts.catch_terminals_too()?;
        RawMode::enter()?
    } else {
        None
    };
    if raw.is_some() {
        passing.begin_screen();
    }
    let ended = talk_with(attached, console, told, raw.as_ref(), passing, interrupts).await;
    passing.leave_screen(matches!(ended, Ok(End::Exit(_))));
    drop(raw);
    passing.say_gaps();
    ended
}

async fn talk_with(
    attached: Attached,
    console: &Console,
    told: Option<Size>,
    raw: Option<&RawMode>,
    passing: &mut Passing,
    interrupts: &mut Interrupts,
) -> Result<End, Halt> {
    let mut feed = Feed::new(console, told, raw)?;
    let (id, mut attached) = (attached.process_id().to_owned(), attached);
    loop {
        let (input, mut output) = attached.split();
        let lost = match exchange(input, &mut output, &mut feed, passing, interrupts).await {
            Err(Halt::Failed(error)) if error.kind() == ErrorKind::AgentLost => error,
            ended => return ended,
        };
        if feed.may_miss_some() {
            return Err(output.left(&input_cut(&id), lost).into());
        }
        attached = tokio::select! {
            again = output.reattach(lost) => again?,
            exit = interrupts.next() => return Err(Halt::Interrupted(exit)),
        };
        feed.begin_again();
    }
}

fn input_cut(id: &str) -> String {
    format!("the connection to {id} was cut while input was passed on; how much of that has arrived is not known")
}

/// Both directions over one connection.
async fn exchange(
    input: AttachedInput,
    output: &mut AttachedOutput,
    feed: &mut Feed<'_>,
    passing: &mut Passing,
    interrupts: &mut Interrupts,
) -> Result<End, Halt> {
    let mut feeding = pin!(feed.pass_on(input));
    let mut hearing = pin!(hear(output, passing));
    let failed = tokio::select! {
        biased;
        ended = &mut hearing => return ended,
        exit = interrupts.next() => return Err(Halt::Interrupted(exit)),
        Err(error) = &mut feeding => error,
    };
    // the connection tells why, and what came before it
    tokio::select! {
        ended = hearing => ended,
        exit = interrupts.next() => Err(Halt::Interrupted(exit)),
        () = tokio::time::sleep(LAST_WORDS) => Err(Halt::Failed(failed)),
    }
}

/// Hands on what the program says.
async fn hear(output: &mut AttachedOutput, passing: &mut Passing) -> Result<End, Halt> {
    while let Some(event) = output.next().await {
        match event? {
            AttachEvent::Stdout(bytes) => passing.bytes(OutputStream::Stdout, &bytes).await?,
            AttachEvent::Stderr(bytes) => passing.bytes(OutputStream::Stderr, &bytes).await?,
            AttachEvent::Gap(gap) => passing.gap(gap),
            AttachEvent::Detached { .. } => return Ok(End::Detached),
            AttachEvent::Exit(result) => return Ok(End::Exit(result)),
        }
    }
    Err(Error::new(ErrorKind::Internal, "the program's output ended without its exit code").into())
}

/// What is typed, and how large our terminal is; over all connections.
struct Feed<'a> {
    console: &'a Console,
    raw: Option<&'a RawMode>,
    stdin: Option<Input>,
    detector: Detector,
    resizes: Option<Resizes>,
    resumed: Resumed,
    /// The size that the program's terminal has.
    told: Option<Size>,
    /// The program reads no more, and whether that has been sent.
    closing: Closing,
    /// It is to run on without us.
    detaching: bool,
    passed_at: Option<Instant>,
}

/// How far the end of the program's input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// There is more to come.
    Open,
    /// It has to be sent.
    Due,
    /// It has been sent.
    Sent,
}

impl<'a> Feed<'a> {
    fn new(console: &'a Console, told: Option<Size>, raw: Option<&'a RawMode>) -> Result<Self, Error> {
        let keys = if raw.is_some() { console.keys.clone() } else { DetachKeys::none() };
        Ok(Self {
            console,
            raw,
            stdin: if console.stdin == Stdin::Ours { Some(Input::stdin()?) } else { None },
            detector: Detector::new(keys),
            resizes: if console.terminal { Some(Resizes::watch()?) } else { None },
            resumed: Resumed::watch()?,
            told,
            closing: if console.stdin == Stdin::Nothing { Closing::Due } else { Closing::Open },
            detaching: false,
            passed_at: None,
        })
    }

    /// Whether input from a pipe may have been lost with the connection: a person sees what is missing, a program does
    /// not.
    fn may_miss_some(&self) -> bool {
        !terminal::stdin_is_terminal() && self.passed_at.is_some_and(|passed| passed.elapsed() < ARRIVED)
    }

    /// There is another connection: what may not have arrived and does no harm twice is due again.
    fn begin_again(&mut self) {
        self.told = None;
        // in a terminal a second one would be one more key
        if self.closing == Closing::Sent && !self.console.terminal {
            self.closing = Closing::Due;
        }
    }

    /// Hands it on; does not end but for a failure. Can be dropped and begun anew on another connection.
    async fn pass_on(&mut self, mut input: AttachedInput) -> Result<std::convert::Infallible, Error> {
        if self.detaching {
            input.detach().await?;
        }
        loop {
            if self.closing == Closing::Due {
                input.close_stdin().await?;
                self.closing = Closing::Sent;
            }
            self.tell_size(&mut input).await?;
            tokio::select! {
                piece = next_piece(self.stdin.as_mut()) => self.typed(piece?, &mut input).await?,
                _ = next_size(self.resizes.as_mut()) => {}
                () = self.resumed.next() => {
                    if let Some(raw) = self.raw {
                        raw.enter_again()?;
                    }
                }
            }
        }
    }

    async fn tell_size(&mut self, input: &mut AttachedInput) -> Result<(), Error> {
        let size = if self.console.terminal { terminal::size() } else { None };
        if let Some(Size { rows, cols }) = size
            && size != self.told
        {
            input.resize(rows, cols).await?;
            self.told = size;
        }
        Ok(())
    }

    async fn typed(&mut self, piece: Vec<u8>, input: &mut AttachedInput) -> Result<(), Error> {
        let typed = if piece.is_empty() {
            self.stdin = None;
            self.closing = Closing::Due;
            Typed { pass: self.detector.rest(), detach: false }
        } else {
            self.detector.take(piece)
        };
        if !typed.pass.is_empty() {
            // what was typed after a change of the size is read after it
            self.tell_size(input).await?;
            self.passed_at = Some(Instant::now());
            input.write(&typed.pass).await?;
            // a program that reads slowly has taken it only now
            self.passed_at = Some(Instant::now());
        }
        if typed.detach {
            self.stdin = None;
            self.detaching = true;
            input.detach().await?;
        }
        Ok(())
    }
}

async fn next_piece(stdin: Option<&mut Input>) -> Result<Vec<u8>, Error> {
    match stdin {
        Some(stdin) => stdin.next().await,
        None => std::future::pending().await,
    }
}

async fn next_size(resizes: Option<&mut Resizes>) -> Size {
    match resizes {
        Some(resizes) => resizes.next().await,
        None => std::future::pending().await,
    }
}
