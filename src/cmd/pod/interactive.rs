//! Talking with a program in the guest: what is typed goes there, what it says comes here.

use std::{pin::pin, time::Duration};

use super::{
    detach_keys::{DetachKeys, Detector},
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
    let flag = if pod.as_str() == PodName::DEFAULT { String::new() } else { format!(" --pod {pod}") };
    format!("podlink: {process_id} runs on; come back with `podlink pod attach{flag} {process_id}`")
}

/// Talks until the program ends, the keys to leave it come, or a signal.
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
    let (input, output) = attached.split();
    let mut feeding = pin!(feed(input, console, told, raw));
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
async fn hear(mut output: AttachedOutput, passing: &mut Passing) -> Result<End, Halt> {
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

/// Hands on what is typed, and how large our terminal is; does not end but for a failure.
async fn feed(
    mut input: AttachedInput,
    console: &Console,
    mut told: Option<Size>,
    raw: Option<&RawMode>,
) -> Result<std::convert::Infallible, Error> {
    let mut stdin = if console.stdin == Stdin::Ours { Some(Input::stdin()?) } else { None };
    if console.stdin == Stdin::Nothing {
        input.close_stdin().await?;
    }
    let keys = if raw.is_some() { console.keys.clone() } else { DetachKeys::none() };
    let mut detector = Detector::new(keys);
    let mut resizes = if console.terminal { Some(Resizes::watch()?) } else { None };
    let mut resumed = Resumed::watch()?;
    loop {
        let size = if console.terminal { terminal::size() } else { None };
        if let Some(Size { rows, cols }) = size
            && size != told
        {
            input.resize(rows, cols).await?;
            told = size;
        }
        tokio::select! {
            piece = next_piece(stdin.as_mut()) => {
                let piece = piece?;
                if piece.is_empty() {
                    stdin = None;
                    let rest = detector.rest();
                    if !rest.is_empty() {
                        input.write(&rest).await?;
                    }
                    input.close_stdin().await?;
                    continue;
                }
                let typed = detector.take(piece);
                if !typed.pass.is_empty() {
                    input.write(&typed.pass).await?;
                }
                if typed.detach {
                    stdin = None;
                    input.detach().await?;
                }
            }
            _ = next_size(resizes.as_mut()) => {}
            () = resumed.next() => {
                if let Some(raw) = raw {
                    raw.enter_again()?;
                }
            }
        }
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
