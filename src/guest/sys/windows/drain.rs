//! What processes that outlive their call go on writing: read, and dropped, for as long as they live.
//!
//! Implementation note: if the agent itself held the read ends, its end would break the pipes of programs that are
//! to live on undisturbed. So a process of its own (`podlink agent drain`) is given handles to them, whose numbers it
//! reads from its stdin; it reads until the last writer is gone, and ends when both its stdin and all pipes are closed. It
//! is started with the first pipe handed over.
//!
//! UNSAFETY: a number that comes over stdin becomes a handle; only the agent writes there, and it names each handle once.
#![expect(unsafe_code, reason = "a handle that comes as a number has no safe form")]

use std::{
    io::{self, Read as _, Write as _},
    os::windows::io::{AsHandle as _, OwnedHandle},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::{
    handle::{give_to, taken},
    helper,
    pipe::OutputPipe,
    wait::has_happened,
};

/// Pipes whose numbers have come and that nobody has begun to read.
const QUEUE: usize = 64;

/// Hands pipes to the process that drains them.
#[derive(Debug)]
pub(crate) struct Drainer {
    /// The executable whose `agent drain` it is; `None` keeps the pipes in this process.
    program: Option<PathBuf>,
    helper: Mutex<Option<Helper>>,
}

/// The process that drains.
#[derive(Debug)]
struct Helper {
    process: OwnedHandle,
    /// The other end of its stdin.
    numbers: io::PipeWriter,
}

impl Drainer {
    /// A drainer that starts nothing yet.
    pub(crate) const fn new(program: Option<PathBuf>) -> Self {
        Self { program, helper: Mutex::new(None) }
    }

    /// Takes over a pipe. Blocks for as long as starting a process takes.
    pub(crate) fn take(&self, pipe: OwnedHandle) {
        let Some(program) = &self.program else { return keep(pipe) };
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        // a second try finds the process killed and starts another
        for _ in 0..2 {
            if helper.as_ref().is_none_or(|helper| has_happened(helper.process.as_handle())) {
                match Helper::start(program) {
                    Ok(started) => *helper = Some(started),
                    Err(error) => {
                        tracing::warn!(%error, "no process to drain left-over output; the agent does it while it lives");
                        return keep(pipe);
                    }
                }
            }
            match helper.as_mut().map(|helper| helper.give(&pipe)) {
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::debug!(%error, "the process that drains left-over output takes nothing more");
                    *helper = None;
                }
                None => {}
            }
        }
        keep(pipe);
    }
}

impl Helper {
    fn start(program: &Path) -> io::Result<Self> {
        let (stdin, numbers) = io::pipe()?;
        let args = ["agent", "drain"].map(str::to_owned);
        let process = helper::start(program, &args, Some(stdin.into()))?;
        Ok(Self { process, numbers })
    }

    fn give(&mut self, pipe: &OwnedHandle) -> io::Result<()> {
        let number = give_to(self.process.as_handle(), pipe.as_handle(), 0)?;
        self.numbers.write_all(&number.to_le_bytes())
    }
}

/// Drains in this process: the next best.
fn keep(pipe: OwnedHandle) {
    let drained = tokio::runtime::Handle::try_current()
        .map_err(io::Error::other)
        .and_then(|runtime| Ok(drop(runtime.spawn(drain(OutputPipe::adopt(pipe)?)))));
    if let Err(error) = drained {
        tracing::warn!(%error, "left-over output could not be drained; its writers will see a broken pipe");
    }
}

async fn drain(mut pipe: OutputPipe) {
    let mut buffer = vec![0; 16 * 1024];
    while matches!(pipe.read(&mut buffer).await, Ok(1..)) {}
}

/// The whole of `podlink agent drain`: the numbers of handles come over stdin; what comes from those is dropped.
///
/// # Errors
/// When stdin cannot be read.
pub fn drain_loop() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (pipes, mut coming) = tokio::sync::mpsc::channel(QUEUE);
    let reading = std::thread::Builder::new().name("stdin".into()).spawn(move || read_numbers(&pipes))?;
    runtime.block_on(async {
        let mut draining = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                pipe = coming.recv() => match pipe {
                    Some(pipe) => drop(draining.spawn(drain(OutputPipe::adopt(pipe)?))),
                    None => break,
                },
                Some(_) = draining.join_next() => {}
            }
        }
        while draining.join_next().await.is_some() {}
        Ok::<(), io::Error>(())
    })?;
    reading.join().unwrap_or_else(|_| Err(io::Error::other("the reader of stdin failed")))
}

fn read_numbers(pipes: &tokio::sync::mpsc::Sender<OwnedHandle>) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut number = [0; 8];
    loop {
        match stdin.read_exact(&mut number) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        // SAFETY: the agent has just opened it here and names it once.
        let pipe = unsafe { taken(u64::from_le_bytes(number)) }?;
        if pipes.blocking_send(pipe).is_err() {
            return Ok(());
        }
    }
}

/// The whole of `podlink agent hold`, which has nothing to do here: a job object holds a call's processes.
pub const fn hold_loop(_leader: i32) {}
