//! A screen that is drawn again and again, until somebody has seen enough.

use super::{Exit, Failure, Outcome, signal::Interrupts};
use crate::host::terminal::{self, Input, RawMode, Screen};

/// Lets `look_again` draw until it fails, `q` or a signal; the terminal is as it was before whenever this returns.
pub(super) async fn live(interrupts: &mut Interrupts, look_again: impl AsyncFnOnce(&mut Screen) -> Outcome) -> Outcome {
    interrupts.catch_terminals_too()?;
    let raw = RawMode::enter()?;
    let mut screen = Screen::open()?;
    let mut keys = if raw.is_some() { Some(Input::stdin()?) } else { None };
    let ended = tokio::select! {
        ended = look_again(&mut screen) => ended,
        () = until_quit(keys.as_mut()) => Ok(Exit::SUCCESS),
        exit = interrupts.next() => Err(Failure::interrupted("interrupted", exit)),
    };
    drop(screen);
    drop(raw);
    ended
}

/// Lines and columns to draw on.
pub(super) fn room() -> (usize, usize) {
    terminal::size().map_or((24, 80), |size| (size.rows.into(), size.cols.into()))
}

/// `q`, Ctrl-C, Ctrl-D, or the end of the keyboard.
async fn until_quit(keys: Option<&mut Input>) {
    let Some(keys) = keys else { return std::future::pending().await };
    while let Ok(piece) = keys.next().await {
        if piece.is_empty() || piece.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4)) {
            return;
        }
    }
}
