//! One call as its callers see it: joined, waited for, left alone.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{
    super::{
        GuestError,
        events::{Bus, CallEvents},
        process::{Claim, Input, Kill, Live, Output, Reader, Ring, Start, Wish},
        sys::CallTree,
    },
    answer::Finished,
};
use crate::protocol::{ErrorCode, ProcessMode};

/// What is known of a call before anything runs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) process_id: Arc<str>,
    pub(super) request_id: String,
    pub(super) mode: ProcessMode,
    pub(super) session: Option<String>,
    pub(super) argv: Option<Vec<String>>,
    pub(super) script_sha256: Option<String>,
    pub(super) pty: bool,
    pub(super) created_at: Timestamp,
    /// Who asked for it.
    pub(super) peer: Option<SocketAddr>,
}

/// The times that a call is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Graces {
    /// How long it lives without a caller.
    pub(super) orphan: Duration,
    /// Between TERM and KILL.
    pub(super) kill: Duration,
}

/// One call, shared by its task and its callers.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) facts: Facts,
    pub(super) live: Arc<Live>,
    /// Tells others of it.
    pub(super) events: Arc<CallEvents>,
    output: Output,
    kill: watch::Sender<Option<Wish>>,
    finished: watch::Sender<Option<Finished>>,
    callers: AtomicUsize,
    /// How many have ever joined: a timer that was set for one who left is void once somebody else has come.
    joined: AtomicUsize,
    /// How long it lives without a caller.
    orphan_grace: Duration,
    /// Between TERM and KILL, where nobody says otherwise.
    kill_grace: Duration,
    /// It needs no caller.
    detached: AtomicBool,
    /// Others of its session were before it when it came.
    in_line: AtomicBool,
}

impl Call {
    /// One without callers.
    pub(super) fn new(facts: Facts, output: Output, graces: Graces, bus: &Arc<Bus>) -> Arc<Self> {
        let events = CallEvents::new(
            bus,
            Arc::clone(&facts.process_id),
            facts.request_id.clone(),
            facts.session.clone(),
            facts.argv.clone(),
            facts.script_sha256.clone(),
        );
        let (kill, finished) = (watch::Sender::new(None), watch::Sender::new(None));
        let detached = AtomicBool::new(facts.mode == ProcessMode::Detached);
        Arc::new(Self {
            facts,
            live: Live::new(Arc::clone(&events) as _),
            events,
            output,
            kill,
            finished,
            callers: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            orphan_grace: graces.orphan,
            kill_grace: graces.kill,
            detached,
            in_line: AtomicBool::new(false),
        })
    }

    /// What is kept of an ended call for a long time: all but its output, where that is in its answer.
    pub(super) fn record(self: &Arc<Self>) -> Arc<Self> {
        let Some(finished) = self.outcome().filter(|_| self.ring().is_none()) else { return Arc::clone(self) };
        Arc::new(Self {
            facts: self.facts.clone(),
            live: Arc::clone(&self.live),
            events: Arc::clone(&self.events),
            output: self.output.clone(),
            kill: watch::Sender::new(None),
            finished: watch::Sender::new(Some(finished.without_output())),
            callers: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            orphan_grace: self.orphan_grace,
            kill_grace: self.kill_grace,
            detached: AtomicBool::new(true),
            in_line: AtomicBool::new(false),
        })
    }

    /// Where its output lies, unless it is buffered.
    pub(super) fn ring(&self) -> Option<&Arc<Ring>> {
        match &self.output {
            Output::Ring(ring) => Some(ring),
            Output::Keep(_) => None,
        }
    }

    /// Buffered, streamed, attached; or detached, from the start or by now.
    pub(super) fn mode(&self) -> ProcessMode {
        if self.detached.load(Ordering::SeqCst) && self.ring().is_some() {
            ProcessMode::Detached
        } else {
            self.facts.mode
        }
    }

    /// Says that others of its session come before it.
    pub(super) fn stands_in_line(&self) {
        self.in_line.store(true, Ordering::SeqCst);
    }

    /// Whether it did: its caller may know it without knowing what became of it.
    pub(super) fn was_in_line(&self) -> bool {
        self.in_line.load(Ordering::SeqCst)
    }

    /// Wishes to end it, for the task that runs it.
    pub(super) fn wishes(&self) -> watch::Receiver<Option<Wish>> {
        self.kill.subscribe()
    }

    /// Hands the answer to everybody who waits.
    pub(super) fn finish(&self, finished: Finished) {
        if let Some(ring) = self.ring() {
            ring.close(); // where nothing ran, nobody else does
        }
        self.finished.send_replace(Some(finished));
    }

    /// Ends it; of several reasons the first counts, and of several grace times the one that is over first.
    pub(super) fn kill(&self, why: Kill, grace: Option<Duration>) {
        let by = Instant::now() + grace.unwrap_or(self.kill_grace);
        self.kill.send_if_modified(|wish| {
            let before = *wish;
            let wish = wish.get_or_insert(Wish { why, by });
            wish.by = wish.by.min(by);
            before != Some(*wish)
        });
    }

    /// What came of it, once it has ended.
    pub(super) fn outcome(&self) -> Option<Finished> {
        self.finished.borrow().clone()
    }

    /// Its answer, when there is one.
    pub(super) async fn wait(&self) -> Finished {
        let mut finished = self.finished.subscribe();
        let value = finished.wait_for(Option::is_some).await.ok().and_then(|value| value.clone());
        value.unwrap_or_else(Finished::fault)
    }
}

/// A call, and its caller's being there. Dropped before the call has ended, the caller has gone away.
#[derive(Debug)]
pub(in crate::guest) struct Joined {
    call: Arc<Call>,
    /// A watcher is not a caller: the call does not live for it.
    watches: bool,
}

impl Joined {
    /// One more who waits.
    pub(super) fn to(call: &Arc<Call>) -> Self {
        call.callers.fetch_add(1, Ordering::SeqCst);
        call.joined.fetch_add(1, Ordering::SeqCst);
        Self { call: Arc::clone(call), watches: false }
    }

    /// Only to look on: the call does not live for it.
    pub(in crate::guest) fn watching(self) -> Self {
        Self { call: Arc::clone(&self.call), watches: true }
    }

    /// The run itself, as it is reached from outside.
    pub(in crate::guest) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.call.live)
    }

    /// The agent's name for the run.
    pub(in crate::guest) fn process_id(&self) -> &str {
        &self.call.facts.process_id
    }

    /// Waits for the program's start.
    ///
    /// # Errors
    /// The answer to a call that ended before anything ran.
    pub(in crate::guest) async fn started(&self) -> Result<Start, Finished> {
        let mut starting = self.call.live.starting();
        tokio::select! {
            biased;
            start = starting.wait_for(Option::is_some) => {
                if let Some(start) = start.ok().and_then(|start| *start) {
                    return Ok(start);
                }
            }
            finished = self.call.wait() => match self.call.live.start_of() {
                Some(start) => return Ok(start),
                None => return Err(finished),
            },
        }
        Err(self.call.wait().await)
    }

    /// Waits for the program's start; where others of the session come first, it is not waited for, and there is none yet.
    ///
    /// # Errors
    /// The answer to a call that ended before anything ran.
    pub(in crate::guest) async fn started_or_in_line(&self) -> Result<Option<Start>, Finished> {
        let has_news = self.call.live.start_of().is_some() || self.call.outcome().is_some();
        if self.call.was_in_line() && !has_news {
            return Ok(None);
        }
        self.started().await.map(Some)
    }

    /// Its answer, when there is one.
    pub(in crate::guest) async fn finished(&self) -> Finished {
        self.call.wait().await
    }

    /// Its answer, if there is one.
    pub(in crate::guest) fn outcome(&self) -> Option<Finished> {
        self.call.outcome()
    }

    /// Its output from an offset on, or from the oldest byte that is kept.
    ///
    /// # Errors
    /// Where it is buffered, or the offset is beyond what has come.
    pub(in crate::guest) fn reader(&self, from: Option<u64>, claim: Claim) -> Result<Reader, GuestError> {
        let Some(ring) = self.call.ring() else {
            return Err(GuestError::new(ErrorCode::Conflict, "the output of a buffered call is in its answer alone")
                .hint("make the call with `detach`, or streamed by its Accept header"));
        };
        Reader::new(ring, from, claim).ok_or_else(|| {
            let from = from.unwrap_or_default();
            GuestError::new(ErrorCode::BadRequest, format!("offset {from} is beyond the output's end, {}", ring.head()))
                .hint("an offset counts the bytes of stdout and stderr together, from the call's start")
        })
    }

    /// The way into the program.
    ///
    /// # Errors
    /// Where it has none.
    pub(in crate::guest) fn input(&self) -> Result<Arc<Input>, GuestError> {
        self.call.live.input().ok_or_else(|| {
            GuestError::new(ErrorCode::Conflict, "the call has no stdin that stays open")
                .hint("make it with `open_stdin`, or attached")
        })
    }

    /// The program's processes, while it runs.
    pub(in crate::guest) fn tree(&self) -> Option<Arc<CallTree>> {
        self.call.live.tree()
    }

    /// Lets it run on without a caller; where another caller is there, this one just leaves. `false` where it cannot be:
    /// a streamed call is its caller's answer, and holds a slot.
    pub(in crate::guest) fn detach(&self) -> bool {
        if self.watches || self.call.callers.load(Ordering::SeqCst) > 1 {
            return true;
        }
        if self.call.facts.mode == ProcessMode::Streamed {
            return false;
        }
        self.call.detached.store(true, Ordering::SeqCst);
        if let Some(ring) = self.call.ring() {
            ring.stop_waiting();
        }
        true
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if self.watches {
            return;
        }
        let call = Arc::clone(&self.call);
        if call.callers.fetch_sub(1, Ordering::SeqCst) > 1
            || call.finished.borrow().is_some()
            || call.detached.load(Ordering::SeqCst)
        {
            return;
        }
        if call.orphan_grace.is_zero() {
            call.kill(Kill::CallerGone, None);
            return;
        }
        let joined = call.joined.load(Ordering::SeqCst);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let watching = async move {
            let mut finished = call.finished.subscribe();
            tokio::select! {
                _ = finished.wait_for(Option::is_some) => {}
                () = tokio::time::sleep(call.orphan_grace) => {
                    if call.callers.load(Ordering::SeqCst) == 0
                        && call.joined.load(Ordering::SeqCst) == joined
                        && !call.detached.load(Ordering::SeqCst)
                    {
                        call.kill(Kill::CallerGone, None);
                    }
                }
            }
        };
        runtime.spawn(watching.in_current_span());
    }
}
