//! A terminal for a program: a pseudo console, of which the agent holds the keyboard's and the screen's other ends.
//!
//! It ends with the program that it was made for: what else is in it then is told so by Windows (`CTRL_CLOSE_EVENT`) and
//! ends too, as a hang-up ends it elsewhere.

use std::{
    io,
    os::windows::io::OwnedHandle,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::{
    console::PseudoConsole,
    pipe::{InputPipe, OutputPipe},
};

/// How long the screen's last changes are waited for once the program has ended: they come within milliseconds, and the
/// end behind them, unless a console host hangs.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// Ctrl-Z and Enter: what a program that reads by lines takes for the end of its input where a line begins.
const END_OF_INPUT: &[u8] = b"\x1a\r";

/// The agent's end of a terminal.
#[derive(Debug)]
pub(crate) struct Pty {
    console: Arc<PseudoConsole>,
    screen: Mutex<OutputPipe>,
    keyboard: InputPipe,
    /// When the last changes are waited for no longer, once they are.
    until: OnceLock<Instant>,
}

/// The program's end of a terminal that no program has yet.
#[derive(Debug)]
pub(crate) struct PtySlave {
    console: Arc<PseudoConsole>,
}

impl Pty {
    /// More bytes than come on its screen after its program's end. It is not known beforehand, and has an end of its own.
    pub(in crate::guest) const MOST_LEFT: u64 = 64 * 1024 * 1024;

    /// A new terminal of this size, or the nearest that there is: the agent's end, and the child's.
    pub(crate) fn open(rows: u16, cols: u16) -> io::Result<(Self, PtySlave)> {
        let (screen, to_screen) = OutputPipe::with_end()?;
        let (keyboard, from_keyboard) = InputPipe::with_end()?;
        let console = Arc::new(PseudoConsole::new(rows, cols, from_keyboard, to_screen)?);
        let slave = PtySlave { console: Arc::clone(&console) };
        Ok((Self { console, screen: Mutex::new(screen), keyboard, until: OnceLock::new() }, slave))
    }

    /// Gives it another size; programs that look for it are told.
    pub(crate) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        self.console.resize(rows, cols)
    }

    /// Waits for output and reads it; 0 is the end: the program has ended and all that it has left on the screen has come.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.screen.lock().await.read(buffer).await
    }

    /// Reads what is still to come after the program's end: `None` where nothing comes any more, 0 at the end.
    pub(in crate::guest) async fn read_last(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let until = *self.until.get_or_init(|| Instant::now() + LAST_WORDS);
        if Instant::now() >= until {
            return Ok(None);
        }
        match tokio::time::timeout_at(until, self.read(buffer)).await {
            Ok(read) => read.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Waits until it takes more, and types some or all of these bytes.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.keyboard.write(bytes).await
    }

    /// What has to be typed for the program to see the end of its input; where a line has begun, that line is ended
    /// before.
    #[expect(clippy::unused_self, reason = "its twin asks the terminal")]
    pub(in crate::guest) fn farewell(&self, midline: bool) -> Vec<u8> {
        if midline { [b"\r", END_OF_INPUT].concat() } else { END_OF_INPUT.to_vec() }
    }

    /// The end itself, for somebody else to read from when this value is gone.
    pub(crate) fn another_handle(&self) -> io::Result<OwnedHandle> {
        let screen = self.screen.try_lock().map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        screen.another_handle()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        self.console.close();
    }
}

impl PtySlave {
    /// The pseudo console that it stands for.
    pub(super) fn into_console(self) -> Arc<PseudoConsole> {
        self.console
    }
}
