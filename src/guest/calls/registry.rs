//! The life of calls: joined by repeats, waiting for a turn and a slot, run, ended by callers that leave or a stop.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, watch};
use tracing::Instrument as _;

use super::{
    super::{
        GuestError, audit,
        counters::Counters,
        events::Bus,
        process::{Environs, Kill, Lingering, Output, Runs, Spec, Wish, supervise},
        request_id::RequestId,
        sys::{Drainer, TreeHome},
    },
    answer::{Finished, conflict},
    call::{Call, Facts, Graces, Joined},
    no_turn::NoSlot,
    request::Checked,
    roster::Roster,
    sessions::{Place, Sessions},
    settings::Settings,
    slots::Slots,
    table::{Digest, Known, Table},
};
use crate::protocol::{ErrorCode, ProcessInfo, ProcessMode, SessionInfo};

/// KiB of scripts and input of all living calls together.
const MOST_INPUT_KIB: usize = 256 * 1024;

/// Bytes that a kept call takes besides its answer.
const KEPT_CALL: usize = 2048;

/// How long ending all killed calls may take beyond the grace they get: what killing a tree takes at most.
pub(super) const END_DEADLINE: Duration = Duration::from_secs(6);

/// All calls of an agent.
#[derive(Debug)]
pub struct Calls {
    pub(super) settings: Settings,
    agent_id: String,
    events: Arc<Bus>,
    counters: Arc<Counters>,
    environs: Arc<Environs>,
    slots: Slots,
    jobs: Arc<Semaphore>,
    pub(super) sessions: Arc<Sessions>,
    input: Arc<Semaphore>,
    books: Mutex<Books>,
    living: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

/// What is known of calls: under one lock, so that no call is in one and not in the other.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) by_request: Table,
    pub(super) by_process: Roster,
}

impl Calls {
    /// Makes the folder for the files of runs, and clears what killed agents left there.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub(in crate::guest) async fn new(
        settings: Settings,
        agent_id: String,
        events: Arc<Bus>,
    ) -> anyhow::Result<Arc<Self>> {
        let trees = TreeHome::detect(&agent_id, settings.use_cgroups, settings.drainer.as_deref());
        Runs::sweep(&settings.runs_dir, &trees).await;
        let counters = Arc::new(Counters::default());
        let environs = Environs {
            counters: Arc::clone(&counters),
            runs: Runs::open(&settings.runs_dir, &agent_id)?,
            trees,
            drainer: Drainer::new(settings.drainer.clone()),
            kill_grace: settings.kill_grace,
            drain_grace: settings.drain_grace,
            delivery: settings.delivery,
            lingering: Lingering::default(),
        };
        Ok(Arc::new(Self {
            slots: Slots::new(settings.slots, settings.queue, settings.queue_wait),
            jobs: Arc::new(Semaphore::new(settings.jobs)),
            sessions: Sessions::new(settings.queue, settings.session_wait),
            settings,
            agent_id,
            events,
            counters,
            environs: Arc::new(environs),
            input: Arc::new(Semaphore::new(MOST_INPUT_KIB)),
            books: Mutex::default(),
            living: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        }))
    }

    /// The bounds in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What holds the processes of a call here.
    pub fn tree_kind(&self) -> &'static str {
        self.environs.trees.kind()
    }

    pub(in crate::guest) const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Calls that run or wait.
    pub(in crate::guest) fn living(&self) -> usize {
        *self.living.borrow()
    }

    pub(in crate::guest) fn agent_id(&self) -> &str {
        &self.agent_id
    }

    pub(in crate::guest) fn events(&self) -> &Arc<Bus> {
        &self.events
    }

    /// Begins a call, or joins the one that an earlier request with the same id began.
    ///
    /// Dropping what it returns is the caller's going away.
    ///
    /// # Errors
    /// When the id stands for something else, or the agent takes no new calls; nothing was run.
    pub(in crate::guest) fn begin(
        self: &Arc<Self>,
        request_id: &RequestId,
        entry: &audit::Entry,
        digest: Digest,
        checked: Checked,
    ) -> Result<Joined, GuestError> {
        let named = request_id.by_caller.then_some(request_id.id.as_str());
        let mut books = self.books();
        let known = named.map_or(Known::Nothing, |id| books.by_request.find(id, digest));
        match known {
            Known::Call(call) if call.mode() == ProcessMode::Detached && !books.by_process.knows(&call) => {
                return Err(conflict("the call has ended and was forgotten"));
            }
            Known::Call(call) => {
                entry.keep(); // it changes nothing: the call has a line already
                return Ok(Joined::to(&call));
            }
            Known::Another => return Err(conflict("the request id stands for another request")),
            Known::Forgotten => return Err(conflict("the call has ended and its result is no longer kept")),
            Known::Nothing => {}
        }
        let Checked { spec, session, may_wait, mode } = checked;
        let facts = Facts { peer: entry.peer(), ..spec.facts(request_id, session, mode) };
        let script = self.settings.audit_scripts.then(|| spec.script()).flatten().map(audit::script_text);
        let orphan = if named.is_some() { self.settings.orphan_grace } else { Duration::ZERO };
        let graces = Graces { orphan, kill: self.settings.kill_grace };
        let call = Call::new(facts, spec.output.clone(), graces, &self.events);
        if *self.stopping.borrow() {
            return Ok(self.refused(&call, entry, Finished::never_started(Kill::Stopping)));
        }
        let place = match &call.facts.session {
            None => None,
            Some(name) => match self.sessions.enter(name, &call, may_wait) {
                Ok(place) => {
                    if !place.is_first {
                        call.stands_in_line();
                    }
                    Some(place)
                }
                Err(why) => return Ok(self.refused(&call, entry, Finished::no_turn(why))),
            },
        };
        if let Some(id) = named {
            books.by_request.begin(&call, id, digest);
        }
        books.by_process.add(&call);
        self.living.send_modify(|count| *count += 1);
        let joined = Joined::to(&call);
        drop(books);
        entry.keep(); // from here on the call says what came of it
        let driving = Arc::clone(self).drive(named.map(str::to_owned), call, spec, place, may_wait, script);
        tokio::spawn(driving.in_current_span());
        Ok(joined)
    }

    /// Ends a call that is not even to wait.
    fn refused(&self, call: &Arc<Call>, entry: &audit::Entry, finished: Finished) -> Joined {
        entry.keep();
        call.tell_end(&finished, None, Duration::ZERO, &self.counters);
        call.finish(finished);
        Joined::to(call)
    }

    /// A call by the agent's name for it.
    ///
    /// # Errors
    /// When none is known.
    pub(in crate::guest) fn find(&self, process_id: &str) -> Result<Joined, GuestError> {
        self.known(process_id).map(|call| Joined::to(&call))
    }

    pub(super) fn known(&self, process_id: &str) -> Result<Arc<Call>, GuestError> {
        self.books().by_process.find(process_id).ok_or_else(|| {
            GuestError::new(ErrorCode::NotFound, "no call with this process id is known").hint(
                "an ended call is kept for an hour, of all that have ended the newest 256; calls end with the agent \
                 that started them",
            )
        })
    }

    /// What is known of one call.
    pub(in crate::guest) fn info(&self, process_id: &str) -> Result<ProcessInfo, GuestError> {
        self.known(process_id).map(|call| call.info())
    }

    /// What is known of all of them.
    pub(in crate::guest) fn infos(&self) -> Vec<ProcessInfo> {
        let calls = self.books().by_process.all();
        calls.iter().map(|call| call.info()).collect()
    }

    /// The sessions in which something runs or waits.
    pub(in crate::guest) fn sessions(&self) -> Vec<SessionInfo> {
        let session = |(name, calls): (String, Vec<Arc<Call>>)| {
            let mut calls = calls.iter().map(|call| call.info());
            SessionInfo { name, running: calls.next(), queued: calls.collect() }
        };
        self.sessions.all().into_iter().map(session).collect()
    }

    /// Clears what agents have left that were killed since the start.
    pub(in crate::guest) async fn sweep(&self) {
        Runs::sweep(&self.settings.runs_dir, &self.environs.trees).await;
    }

    /// Takes no further call, lets running ones end within `drain`, then ends them.
    pub async fn stop(&self, drain: Duration) {
        {
            let _books = self.books(); // a call is either in them by now, or refused
            self.stopping.send_replace(true);
        }
        if self.all_ended(drain).await {
            return;
        }
        for call in self.books().by_process.living() {
            call.kill(Kill::Stopping, None);
        }
        if !self.all_ended(self.settings.kill_grace + END_DEADLINE).await {
            tracing::error!("calls are still running though they were killed");
        }
    }

    async fn all_ended(&self, limit: Duration) -> bool {
        let mut living = self.living.subscribe();
        tokio::time::timeout(limit, living.wait_for(|count| *count == 0)).await.is_ok()
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task of one call, from its place in the queue to its answer.
    async fn drive(
        self: Arc<Self>,
        named: Option<String>,
        call: Arc<Call>,
        spec: Spec,
        place: Option<Place>,
        may_wait: bool,
        script: Option<String>,
    ) {
        let begun = Instant::now();
        // a task of its own, so that a bug that panics in it is an answer too
        let work = Arc::clone(&self).work(Arc::clone(&call), spec, place, may_wait).in_current_span();
        let finished = tokio::spawn(work).await.unwrap_or_else(|error| {
            tracing::error!(request_id = call.facts.request_id, %error, "a call's task failed");
            Finished::fault()
        });
        let took = begun.elapsed();
        call.log_end(&finished, took);
        call.tell_end(&finished, script.as_deref(), took, &self.counters);
        let (len, tells_something) =
            (finished.ran.then(|| KEPT_CALL + finished.len()), finished.is_worth_a_record() || call.was_in_line());
        call.finish(finished);
        let mut books = self.books();
        if let Some(id) = &named {
            books.by_request.end(id, len);
        }
        books.by_process.end(&call);
        if !tells_something {
            books.by_process.forget(&call.facts.process_id);
        }
        drop(books);
        self.living.send_modify(|count| *count -= 1);
    }

    async fn work(self: Arc<Self>, call: Arc<Call>, spec: Spec, place: Option<Place>, may_wait: bool) -> Finished {
        let kib = spec.input_len() / 1024 + 1;
        let Ok(_input) = Arc::clone(&self.input).try_acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)) else {
            return Finished::no_slot(NoSlot::QueueFull);
        };
        let kill = call.wishes();
        let (mut wished, mut stopping) = (kill.clone(), self.stopping.subscribe());
        let permit = tokio::select! {
            biased;
            wish = wished.wait_for(Option::is_some) => {
                let why = wish.ok().and_then(|wish| *wish).map_or(Kill::CallerGone, |wish: Wish| wish.why);
                return Finished::never_started(why);
            }
            _ = stopping.wait_for(|stopping| *stopping) => return Finished::never_started(Kill::Stopping),
            permit = self.permit(call.facts.mode, place.as_ref(), may_wait) => match permit {
                Ok(permit) => permit,
                Err(refusal) => return refusal,
            },
        };
        let process_id = spec.process_id.clone();
        let buffered = matches!(spec.output, Output::Keep(_));
        let running = self.counters.running();
        let outcome = supervise(spec, Arc::clone(&self.environs), Arc::clone(&call.live), kill, (permit, place)).await;
        drop(running);
        match outcome {
            Ok(outcome) if buffered => Finished::of_run(&process_id, outcome),
            Ok(outcome) => Finished::of_streamed(&process_id, outcome),
            Err(error) => Finished::not_spawned(&error),
        }
    }

    /// The right to run: a turn in the session, then a slot, or a place among the jobs.
    async fn permit(
        &self,
        mode: ProcessMode,
        place: Option<&Place>,
        may_wait: bool,
    ) -> Result<tokio::sync::OwnedSemaphorePermit, Finished> {
        if let Some(place) = place {
            place.turn().await.map_err(Finished::no_turn)?;
        }
        match mode {
            ProcessMode::Detached | ProcessMode::Attached => {
                Arc::clone(&self.jobs).try_acquire_owned().map_err(|_| Finished::too_many_jobs())
            }
            _ if may_wait => self.slots.take().await.map_err(Finished::no_slot),
            _ => self.slots.try_take().ok_or_else(|| Finished::busy("every slot is taken")),
        }
    }
}
