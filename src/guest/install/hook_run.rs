//! One hook, run as a tree of processes that is ended when it takes too long.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::sync::watch;

use super::{
    super::{
        counters::Counters,
        process::{
            Ending, Environment, Environs, Kill, Lingering, Live, Observer, Output, Program, Runs, Spec, Stdin, Wish,
            supervise,
        },
        random_hex,
        sys::{self, Drainer, TreeHome},
    },
    places::{self, Places},
    record::Hook,
};
use crate::{protocol::FrameKind, token::ensure_private_dir};

/// Between asking a hook to end and ending it.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of what a hook writes that its log takes.
const MOST_LOGGED: usize = 16 << 20;

/// Bytes of it that are looked at for its last line.
const TAIL: usize = 64 << 10;

/// How a hook ended.
#[derive(Debug)]
pub(super) enum HookEnd {
    /// With 0.
    Succeeded,
    /// It has failed, for this reason.
    Failed(String),
    /// Whoever installs was asked to end; it is begun again another time.
    Interrupted,
}

/// Where the processes of hooks are known from one installer to the next.
#[derive(Debug)]
pub(super) struct HookHome {
    environs: Arc<Environs>,
}

impl HookHome {
    /// Ends what is left of a hook whose installer was killed, and makes ready for the next.
    pub(super) async fn open(state: &Path) -> anyhow::Result<Self> {
        let id = random_hex::<16>()?;
        let drainer = std::env::current_exe().ok();
        let trees = TreeHome::detect(&id, true, drainer.as_deref());
        let folder = places::runs(state);
        Runs::sweep(&folder, &trees).await;
        let environs = Environs {
            counters: Arc::new(Counters::default()),
            runs: Runs::open(&folder, &id)?,
            trees,
            drainer: Drainer::new(drainer),
            kill_grace: GRACE,
            drain_grace: Duration::from_millis(200),
            delivery: Duration::from_secs(10),
            lingering: Lingering::default(),
        };
        Ok(Self { environs: Arc::new(environs) })
    }

    /// Runs it to its end, or until `stop` says so.
    pub(super) async fn run(
        &self,
        hook: &Hook,
        places: &Places,
        timeout: Duration,
        stop: watch::Receiver<bool>,
    ) -> anyhow::Result<HookEnd> {
        let path = places.hooks().join(&hook.name);
        let argv = sys::hook_command(&path).context("nothing here runs a file of that kind")?;
        let log = HookLog::open(&places.state, &hook.name)?;
        let spec = Spec {
            process_id: format!("hook-{}", random_hex::<16>()?),
            allow_breakaway: false,
            program: Program::Argv(argv),
            cwd: Some(places.hooks()),
            environment: Environment {
                add: [("PODLINK_BUNDLE".to_owned(), places.bundle.to_string_lossy().into_owned())].into(),
                ..Environment::default()
            },
            stdin: Stdin { bytes: Vec::new(), open: false },
            terminal: None,
            timeout: Some(timeout),
            output: Output::Keep(TAIL),
        };
        let live = Live::new(Arc::clone(&log) as Arc<dyn Observer>);
        let (wish, wished) = watch::channel(None);
        let run = supervise(spec, Arc::clone(&self.environs), live, wished, ());
        let ask = async {
            let mut stop = stop;
            if stop.wait_for(|stop| *stop).await.is_ok() {
                wish.send_replace(Some(Wish { why: Kill::Stopping, by: Instant::now() + GRACE }));
            }
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = run => outcome,
            () = ask => return Ok(HookEnd::Interrupted), // never: it only asks
        };
        let file = log.path.display();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                return Ok(HookEnd::Failed(format!("it could not be started: {:#}", anyhow::Error::from(error))));
            }
        };
        Ok(match (outcome.ending, outcome.rc) {
            (Ending::Killed(_), _) => HookEnd::Interrupted,
            (Ending::TimedOut, _) => {
                HookEnd::Failed(format!("it took longer than {} s and was ended; {file}", timeout.as_secs_f32()))
            }
            (Ending::Exited, 0) => HookEnd::Succeeded,
            (Ending::Exited, code) => {
                let said = log.last_line().map(|line| format!(": {line}")).unwrap_or_default();
                HookEnd::Failed(format!("it ended with {}{said}; {file}", code_text(code)))
            }
        })
    }
}

/// NTSTATUS codes are known by their hexadecimal form.
fn code_text(code: i64) -> String {
    if code > 0xffff { format!("0x{code:X}") } else { code.to_string() }
}

/// What a hook writes, both streams as they come.
#[derive(Debug)]
struct HookLog {
    path: std::path::PathBuf,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    room: usize,
    last: Vec<u8>,
}

impl HookLog {
    fn open(state: &Path, name: &str) -> anyhow::Result<Arc<Self>> {
        let folder = places::hook_logs(state);
        ensure_private_dir(&folder)?;
        let path = folder.join(format!("{name}.log"));
        let file = sys::open_private_append(&path).with_context(|| format!("cannot write {}", path.display()))?;
        sys::truncate(&file, 0).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Arc::new(Self { path, written: Mutex::new(Written { file, room: MOST_LOGGED, last: Vec::new() }) }))
    }

    /// The last line that says something.
    fn last_line(&self) -> Option<String> {
        const LONGEST: usize = 200;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&written.last).into_owned();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|c| !c.is_control()).take(LONGEST).collect())
    }
}

impl Observer for HookLog {
    fn started(&self, pid: u32) {
        tracing::info!(pid, log = %self.path.display(), "a hook of the installation runs");
    }

    fn output(&self, _kind: FrameKind, bytes: &[u8]) {
        const KEPT: usize = 1024;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = bytes.len().min(written.room);
        if taken > 0 {
            written.room -= taken;
            if let Err(error) = written.file.write_all(&bytes[..taken]) {
                tracing::warn!(%error, "the log of a hook could not be written");
                written.room = 0;
            } else if written.room == 0 {
                drop(written.file.write_all(b"\n... and more, which is not kept\n"));
            }
        }
        written.last.extend_from_slice(bytes);
        let over = written.last.len().saturating_sub(KEPT);
        written.last.drain(..over);
    }
}
