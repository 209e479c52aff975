//! The supervisor of one program: everything fallible first, then spawn, then wait for what ends it.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::JoinHandle};
use tracing::{Instrument as _, Span};

use super::{
    super::counters::Counters,
    super::sys::{
        self, CallTree, Child, ChildEnd, Command, Drainer, Ended, Exit, InputEnd, InputPipe, OutputEnd, OutputPipe,
        Pty, PtySlave, TreeHome,
    },
    error::SpawnError,
    input::Input,
    launch,
    live::{Kill, Live, Wish},
    output::{Captured, Counted, Rest, Sink, drain_into},
    runs::{RunFolder, Runs},
    spec::{Output, Spec, Terminal},
};
use crate::protocol::{FrameKind, RC_SIGNAL_BASE, RC_TIMED_OUT};

/// What every run of an agent shares.
#[derive(Debug)]
pub(crate) struct Environs {
    /// Where output is counted.
    pub counters: Arc<Counters>,
    /// Where the files of runs lie.
    pub runs: Runs,
    /// Where the trees of runs are made.
    pub trees: TreeHome,
    /// Who reads what outlives a run.
    pub drainer: Drainer,
    /// Between TERM and KILL.
    pub kill_grace: Duration,
    /// After the leader's exit, how long output of its children is waited for.
    pub drain_grace: Duration,
    /// After the leader's exit, how long a reader may take for what came before it.
    pub delivery: Duration,
    /// Trees of ended runs in which somebody lives on.
    pub lingering: Lingering,
}

/// Trees that could not be given up when their run ended, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Lingering(Mutex<VecDeque<Arc<CallTree>>>);

impl Lingering {
    /// Trees that are asked again at the end of each further run: enough to keep up, few enough to cost nothing.
    const ASKED_AT_ONCE: usize = 8;

    /// Gives up a tree, now or when it is empty.
    fn release(&self, tree: Arc<CallTree>) {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..trees.len().min(Self::ASKED_AT_ONCE) {
            if let Some(oldest) = trees.pop_front()
                && !oldest.release()
            {
                trees.push_back(oldest);
            }
        }
        if !tree.release() {
            tracing::debug!("processes that the program left behind live on");
            trees.push_back(tree);
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Exited,
    /// By its time-out.
    TimedOut,
    /// From outside.
    Killed(Kill),
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The leader's exit code, 128+N after signal N, or 124 after a time-out.
    pub rc: i64,
    /// The signal that killed the leader, if one did.
    pub signal: Option<i32>,
    /// What came on stdout.
    pub stdout: Captured,
    /// What came on stderr.
    pub stderr: Captured,
    /// From the spawn to the leader's end.
    pub duration: Duration,
    /// Whom a time-out or kill ended, and who is left.
    pub ended: Ended,
}

/// A program that has been started.
struct Started {
    child: Child,
    pid: u32,
    tree: Arc<CallTree>,
    folder: RunFolder,
    ends: Ends,
}

/// The agent's ends of what the program reads and writes.
struct Ends {
    stdout: OutputEnd,
    /// None in a terminal.
    stderr: Option<OutputEnd>,
    input: Option<InputEnd>,
}

/// Runs a program to its end; `live` is how others reach it meanwhile, and `kill` how they end it. What is `held` is let
/// go of when the program has ended, whoever still reads its output. Once this has been
/// polled it must be driven to its end.
///
/// # Errors
/// [`SpawnError`]: nothing ran.
pub(crate) async fn supervise(
    mut spec: Spec,
    environs: Arc<Environs>,
    live: Arc<Live>,
    kill: watch::Receiver<Option<Wish>>,
    held: impl Send,
) -> Result<Outcome, SpawnError> {
    let (timeout, output) = (spec.timeout, spec.output.clone());
    let first = if spec.stdin.open { std::mem::take(&mut spec.stdin.bytes) } else { Vec::new() };
    let spawning = Arc::clone(&environs);
    // while it waited for its turn
    if let (Some(terminal), Some((rows, cols))) = (&mut spec.terminal, live.asked_size()) {
        (terminal.rows, terminal.cols) = (rows, cols);
    }
    // files and fork block, for longer on a loaded machine: not on a thread that answers /health
    let span = Span::current();
    let started = tokio::task::spawn_blocking(move || span.in_scope(|| start(&spec, &spawning))).await;
    let begun = Instant::now();
    let Started { mut child, pid, tree, folder, ends } =
        started.map_err(|error| SpawnError::Files(io::Error::other(error)))??;
    let input = ends.input.map(|end| Input::new(end, first));
    live.start(pid, Arc::clone(&tree), input.clone());

    let (leader_gone, leader_is_gone) = watch::channel(false);
    let read = |end, kind| {
        let sink = match &output {
            Output::Keep(max) => Sink::Keep(Captured::default(), *max, kind, live.observer()),
            Output::Ring(ring) => Sink::Ring(Arc::clone(ring), 0, kind, live.observer()),
        };
        let sink = Counted { sink, counters: Arc::clone(&environs.counters) };
        tokio::spawn(drain_into(sink, end, environs.drain_grace, leader_is_gone.clone()).in_current_span())
    };
    let stdout = read(ends.stdout, FrameKind::Stdout);
    let stderr = ends.stderr.map(|end| read(end, FrameKind::Stderr));

    let ending = tokio::select! {
        biased;
        _ = child.wait() => Ending::Exited,
        wish = wished_for(kill.clone()) => Ending::Killed(wish.why),
        () = timed_out(timeout) => Ending::TimedOut,
    };
    if let (Ending::Killed(_), Output::Ring(ring)) = (ending, &output) {
        ring.stop_waiting();
    }
    let ended = if ending == Ending::Exited {
        Ended::default()
    } else {
        let by = Instant::now() + environs.kill_grace;
        // a wish may still bring it forward
        tree.end(|| kill.borrow().map_or(by, |wish| wish.by)).await
    };
    let exit = reap(&mut child).await;
    live.end();
    drop(held);
    if let Some(input) = input {
        input.shut();
    }
    let duration = begun.elapsed();
    leader_gone.send_replace(true);
    let ((stdout, out_rest), (stderr, err_rest)) = deliver(stdout, stderr, &output, environs.delivery, kill).await;

    let span = Span::current();
    let cleaning = move || span.in_scope(|| clean_up(&environs, [out_rest, err_rest], tree, folder));
    tokio::task::spawn_blocking(cleaning).await.ok();
    let (rc, signal) = code_of(exit, ending);
    Ok(Outcome { ending, rc, signal, stdout, stderr, duration, ended })
}

/// Waits until what came has been taken; a reader that is gone or too slow for that is waited for no longer.
async fn deliver(
    stdout: JoinHandle<(Captured, Rest)>,
    stderr: Option<JoinHandle<(Captured, Rest)>>,
    output: &Output,
    limit: Duration,
    kill: watch::Receiver<Option<Wish>>,
) -> ((Captured, Rest), (Captured, Rest)) {
    let both = async { tokio::join!(finish(Some(stdout)), finish(stderr)) };
    let Output::Ring(ring) = output else { return both.await };
    tokio::pin!(both);
    let read = tokio::select! {
        read = &mut both => read,
        () = async {
            tokio::select! {
                _ = wished_for(kill) => {}
                () = tokio::time::sleep(limit) => tracing::info!("the output's reader was given up"),
            }
        } => {
            ring.stop_waiting();
            both.await
        }
    };
    ring.close();
    read
}

async fn timed_out(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Everything that can fail comes before the spawn, so that a failure cannot leave a child behind.
fn start(spec: &Spec, environs: &Environs) -> Result<Started, SpawnError> {
    let folder = environs.runs.folder_of(&spec.process_id).map_err(SpawnError::Files)?;
    let argv = launch::command_line(spec, &folder)?;
    let cwd = working_directory(spec)?;
    let mut command = Command::new(&argv, &cwd);
    if spec.environment.clear {
        command.clear_env();
    }
    command.envs(&spec.environment.add);
    if spec.allow_breakaway {
        command.allow_breakaway();
    }
    let ends = match &spec.terminal {
        Some(terminal) => {
            let (ends, slave) = terminal_ends(terminal).map_err(SpawnError::Terminal)?;
            command.terminal(slave);
            ends
        }
        None => pipe_ends(spec, &folder, &mut command).map_err(SpawnError::Files)?,
    };
    let mut tree = environs.trees.plant(&spec.process_id);
    match command.spawn(&mut tree) {
        Ok(child) => {
            let pid = tree.leader().unwrap_or_else(|| child.id());
            Ok(Started { child, pid, tree: Arc::new(tree), folder, ends })
        }
        Err(cause) => {
            tree.release();
            Err(SpawnError::Program { program: argv[0].clone(), cause })
        }
    }
}

/// A terminal, whose other end is still to become the command's.
fn terminal_ends(terminal: &Terminal) -> io::Result<(Ends, PtySlave)> {
    let (pty, slave) = Pty::open(terminal.rows, terminal.cols)?;
    let pty = Arc::new(pty);
    let input = Some(InputEnd::Terminal(Arc::clone(&pty)));
    Ok((Ends { stdout: OutputEnd::Terminal(pty), stderr: None, input }, slave))
}

/// Pipes, whose other ends are the command's own now.
fn pipe_ends(spec: &Spec, folder: &RunFolder, command: &mut Command) -> io::Result<Ends> {
    let (stdout, child_stdout) = OutputPipe::new()?;
    let (stderr, child_stderr) = OutputPipe::new()?;
    let (input, stdin) = if spec.stdin.open {
        let (input, stdin) = InputPipe::new()?;
        (Some(InputEnd::Pipe(input)), stdin)
    } else if spec.stdin.bytes.is_empty() {
        (None, ChildEnd::null())
    } else {
        // a file rather than a pipe: a program that does not read it blocks nobody
        (None, ChildEnd::from(std::fs::File::open(folder.write("stdin", &spec.stdin.bytes)?)?))
    };
    command.streams(stdin, child_stdout, child_stderr);
    let (stdout, stderr) = (OutputEnd::Pipe(stdout), Some(OutputEnd::Pipe(stderr)));
    Ok(Ends { stdout, stderr, input })
}

/// Asked for beforehand: the spawn's own error would not tell a missing folder from a missing program.
fn working_directory(spec: &Spec) -> Result<PathBuf, SpawnError> {
    let Some(path) = &spec.cwd else {
        let home = dirs::home_dir().filter(|home| home.is_dir() && sys::may_enter(home).is_ok());
        return Ok(home.unwrap_or_else(sys::root_folder));
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => match sys::may_enter(path) {
            Ok(()) => Ok(path.clone()),
            Err(cause) => Err(SpawnError::Cwd { path: path.clone(), cause }),
        },
        Ok(_) => Err(SpawnError::Cwd { path: path.clone(), cause: io::ErrorKind::NotADirectory.into() }),
        Err(cause) => Err(SpawnError::Cwd { path: path.clone(), cause }),
    }
}

async fn wished_for(mut kill: watch::Receiver<Option<Wish>>) -> Wish {
    let wish = kill.wait_for(Option::is_some).await.ok().and_then(|wish| *wish);
    match wish {
        Some(wish) => wish,
        None => std::future::pending().await, // nobody can wish any more
    }
}

/// How the leader ended: it has, or was killed and cannot take long.
async fn reap(child: &mut Child) -> Option<Exit> {
    const DEADLINE: Duration = Duration::from_secs(2);
    match tokio::time::timeout(DEADLINE, child.wait()).await {
        Ok(Ok(exit)) => Some(exit),
        Ok(Err(error)) => {
            tracing::error!(%error, "a program's exit status could not be read");
            None
        }
        Err(_) => None, // named among the survivors
    }
}

async fn finish(task: Option<JoinHandle<(Captured, Rest)>>) -> (Captured, Rest) {
    let Some(task) = task else { return (Captured::default(), Rest::Ended) };
    task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the reader of a program's output failed");
        (Captured::default(), Rest::Ended)
    })
}

fn clean_up(environs: &Environs, rests: [Rest; 2], tree: Arc<CallTree>, folder: RunFolder) {
    for rest in rests {
        if let Rest::Open(pipe) = rest {
            match pipe.into_owned() {
                Ok(pipe) => environs.drainer.take(pipe),
                Err(error) => tracing::warn!(%error, "left-over output could not be drained"),
            }
        }
    }
    drop(folder);
    environs.lingering.release(tree);
}

fn code_of(exit: Option<Exit>, ending: Ending) -> (i64, Option<i32>) {
    let signal = if let Some(Exit::Signal(signal)) = exit { Some(signal) } else { None };
    let rc = match (ending, exit) {
        (Ending::TimedOut, _) => RC_TIMED_OUT,
        (_, Some(Exit::Code(code))) => code,
        (_, Some(Exit::Signal(signal))) => RC_SIGNAL_BASE + i64::from(signal),
        // only where the status could not be read: a kill that has not worked yet
        (_, None) => RC_SIGNAL_BASE + 9,
    };
    (rc, signal)
}
