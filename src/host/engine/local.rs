//! The local engine: the agent as a background process of this user, on this machine.
//!
//! Implementation note: whether it runs is told by the lock on its pid file, which the kernel gives back however the
//! process ends. The number in the file is believed only while the lock is held, so that a stale file never leads
//! to a stranger's process.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{ContainerState, EngineSettings, Started, Stopped, this_program};
use crate::{
    host::{
        AgentClient, ClientSettings, Error, ErrorKind, Pod, Result, Seen,
        ports::{Transport, require_free},
    },
    token::STAGED_NAME,
};

/// Between two looks at a condition that comes about in some ten milliseconds.
const POLL: Duration = Duration::from_millis(15);
/// What of a log is shown of a failure.
const SHOWN_LINES: usize = 5;

fn pid_file(pod: &Pod) -> PathBuf {
    pod.dir().join("agent.pid")
}

pub(super) fn log_file(pod: &Pod) -> PathBuf {
    pod.dir().join("agent.log")
}

/// What the agent says where it has no log yet: wrong arguments, a panic.
fn stderr_file(pod: &Pod) -> PathBuf {
    pod.dir().join("agent.stderr")
}

pub(super) fn state(pod: &Pod) -> Result<ContainerState> {
    Ok(match is_locked(&pid_file(pod))? {
        None => ContainerState::Absent,
        Some(true) => ContainerState::Running,
        Some(false) => ContainerState::Exited { code: None },
    })
}

/// The pid of the agent that holds the lock; `None` where none does, or it has not written its own yet.
pub(in crate::host) fn holder(pod: &Pod) -> Option<u32> {
    let path = pid_file(pod);
    let text = fs_err::read_to_string(&path).ok()?;
    let (pid, started) = text.trim().split_once(' ')?;
    let (pid, started) = (pid.parse().ok().filter(|pid| *pid > 1)?, started.parse::<u64>().ok()?);
    // another start is another process: what stands there is an earlier agent's
    (start_time(pid)? == started && is_locked(&path).ok()? == Some(true)).then_some(pid)
}

/// When a process started, in clock ticks since boot, as the agent writes it into its pid file.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name may hold anything; from its last bracket on, field 22 of all is the 20th
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// How often an agent is started that ends at once. Once more than needed: whoever looks at the lock in the instant in
/// which the agent takes it keeps it from the agent.
const STARTS: usize = 2;

pub(super) async fn up(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    if state(pod)? == ContainerState::Running {
        return Ok(Started::AlreadyRunning);
    }
    let client = AgentClient::for_pod(pod, ClientSettings::DEFAULT)?;
    require_free("agent", pod.settings().ports.agent, Transport::Tcp).map_err(|error| {
        error.with_hint(format!("end that program, or run `podlink setup --pod {} --agent-port PORT`", pod.name()))
    })?;
    let deadline = Instant::now() + settings.local_start;
    let mut starts = 1;
    let mut agent = Starting(Some(start(pod)?));
    loop {
        if answers(pod, &client).await? {
            agent.0 = None;
            return Ok(Started::Now);
        }
        let ended = agent.try_wait().map_err(|error| failed(pod, "the agent cannot be watched").with_source(error))?;
        if let Some(status) = ended {
            if answers(pod, &client).await? {
                return Ok(Started::AlreadyRunning); // another `up` was faster
            }
            if starts == STARTS && state(pod)? != ContainerState::Running {
                return Err(failed(pod, &format!("the agent ended at once ({status})")));
            }
            // where another one holds the lock, it is on its way up: a new one would only find it held
            if state(pod)? != ContainerState::Running {
                starts += 1;
                agent = Starting(Some(start(pod)?));
            }
        }
        if Instant::now() > deadline {
            drop(agent);
            let seconds = settings.local_start.as_secs_f32();
            return Err(failed(pod, &format!("the agent does not answer within {seconds} s and was ended")));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// An agent on its way up. Dropped before it is up (Ctrl-C, the deadline), it is ended: nobody would know of it.
struct Starting(Option<std::process::Child>);

impl Starting {
    fn try_wait(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        self.0.as_mut().map_or(Ok(None), std::process::Child::try_wait)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // our own child: until it is waited for, its number is nobody else's
        if let Some(agent) = &mut self.0 {
            drop(agent.kill());
            drop(agent.wait());
        }
    }
}

/// Whether the agent that answers is the one that holds the lock, and knows the token.
///
/// Asked in this order: to try the lock while the agent takes it could keep it from the agent.
async fn answers(pod: &Pod, client: &AgentClient) -> Result<bool> {
    let is_ours = matches!(client.health().await?, Seen::Ready(_) | Seen::NotReady(_));
    Ok(is_ours && state(pod)? == ContainerState::Running)
}

pub(super) async fn down(pod: &Pod, settings: &EngineSettings) -> Result<Stopped> {
    if state(pod)? != ContainerState::Running {
        return Ok(Stopped::WasNotRunning);
    }
    signal(pod, Signal::TERM, settings.local_start).await?;
    if is_gone_within(pod, settings.local_stop).await? {
        return Ok(Stopped::Now);
    }
    signal(pod, Signal::KILL, settings.local_kill).await?;
    if is_gone_within(pod, settings.local_kill).await? {
        return Ok(Stopped::Killed);
    }
    Err(failed(pod, "the agent does not end, not even by SIGKILL"))
}

async fn is_gone_within(pod: &Pod, limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    while state(pod)? == ContainerState::Running {
        if Instant::now() > deadline {
            return Ok(false);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(true)
}

/// Sends a signal to the process that holds the lock.
async fn signal(pod: &Pod, signal: Signal, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let pid = loop {
        // an agent that has just started holds the lock an instant before it has written who it is
        match holder(pod) {
            Some(pid) => break pid,
            None if state(pod)? != ContainerState::Running => return Ok(()),
            None if Instant::now() > deadline => {
                let path = pid_file(pod);
                return Err(failed(pod, &format!("{} is locked and names no agent that lives", path.display())));
            }
            None => tokio::time::sleep(POLL).await,
        }
    };
    let Some(process) = Pid::from_raw(pid.cast_signed()) else { return Ok(()) };
    match kill_process(process, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(failed(pod, &format!("the agent (pid {pid}) cannot be signalled")).with_source(error)),
    }
}

/// Whether somebody holds the lock; `None` where there is no such file.
fn is_locked(path: &Path) -> Result<Option<bool>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::new(ErrorKind::File, format!("could not open {}", path.display())).with_source(error));
        }
    };
    // shared, so that two who look do not take each other for the agent
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(false)),
        Err(TryLockError::WouldBlock) => Ok(Some(true)),
        Err(TryLockError::Error(error)) => {
            Err(Error::new(ErrorKind::File, format!("could not try the lock of {}", path.display())).with_source(error))
        }
    }
}

fn start(pod: &Pod) -> Result<std::process::Child> {
    let stderr = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(stderr_file(pod))
        .map_err(|error| failed(pod, "its file for errors cannot be made").with_source(error))?;
    #[expect(clippy::disallowed_methods, reason = "the host's one place to start the local agent")]
    let mut command = std::process::Command::new(this_program::path()?);
    command.args(["agent", "serve", "--listen", &pod.address().to_string()]);
    command.arg("--token-file").arg(pod.dir().join(Pod::OEM_DIR).join(STAGED_NAME));
    command
        .arg("--runs-dir")
        .arg(pod.dir().join("runs"))
        .arg("--pid-file")
        .arg(pid_file(pod))
        .arg("--log-file")
        .arg(log_file(pod));
    command.current_dir(dirs::home_dir().filter(|home| home.is_dir()).unwrap_or_else(|| "/".into()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    // a group of its own: Ctrl-C and the end of the terminal are not meant for it
    command.process_group(0);
    // what concerns this tool is no business of the scripts that the agent will run
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PODLINK_")) {
        command.env_remove(name);
    }
    command.spawn().map_err(|error| failed(pod, "the agent could not be started").with_source(error))
}

/// A failure with the last lines of what the agent left.
fn failed(pod: &Pod, what: &str) -> Error {
    let said: Vec<String> = [stderr_file(pod), log_file(pod)].iter().flat_map(|path| last_lines(path)).collect();
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) };
    Error::new(ErrorKind::Engine, format!("{what}{said}"))
        .with_hint(format!("the agent's log is {}", log_file(pod).display()))
}

fn last_lines(path: &Path) -> Vec<String> {
    /// Far more than a few lines take.
    const TAIL: u64 = 8 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        Ok(tail)
    };
    let tail = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec()
}
