//! The life of calls: joined by repeats, waiting for a slot, run, ended by callers that leave or an agent that stops.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, watch};

use super::{
    super::{
        GuestError,
        process::{Environs, Kill, Lingering, Runs, Spec, supervise},
        request_id::RequestId,
        sys::{Drainer, TreeHome},
    },
    answer::{Finished, conflict},
    call::{Call, Caller},
    settings::Settings,
    slots::Slots,
    table::{Digest, Known, Table},
};

/// KiB of scripts and input of all living calls together.
const MOST_INPUT_KIB: usize = 256 * 1024;

/// How long ending all killed calls may take beyond the grace they get: what killing a tree takes at most.
const END_DEADLINE: Duration = Duration::from_secs(6);

/// All calls of an agent.
#[derive(Debug)]
pub struct Calls {
    settings: Settings,
    agent_id: String,
    environs: Arc<Environs>,
    slots: Slots,
    input: Arc<Semaphore>,
    table: Mutex<Table>,
    living: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

impl Calls {
    /// Makes the folder for the files of runs, and clears what killed agents left there.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub async fn new(settings: Settings, agent_id: String) -> anyhow::Result<Arc<Self>> {
        let trees = TreeHome::detect(&agent_id, settings.use_cgroups, settings.drainer.as_deref());
        Runs::sweep(&settings.runs_dir, &trees).await;
        let environs = Environs {
            runs: Runs::open(&settings.runs_dir, &agent_id)?,
            trees,
            drainer: Drainer::new(settings.drainer.clone()),
            kill_grace: settings.kill_grace,
            drain_grace: settings.drain_grace,
            lingering: Lingering::default(),
        };
        Ok(Arc::new(Self {
            slots: Slots::new(settings.slots, settings.queue, settings.queue_wait),
            settings,
            agent_id,
            environs: Arc::new(environs),
            input: Arc::new(Semaphore::new(MOST_INPUT_KIB)),
            table: Mutex::default(),
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

    pub(in crate::guest) fn agent_id(&self) -> &str {
        &self.agent_id
    }

    /// Runs `spec`, or joins the run that an earlier request with the same id began, and waits for its end.
    ///
    /// Dropping the future is the caller's going away.
    pub(in crate::guest) async fn call(
        self: &Arc<Self>,
        request_id: &RequestId,
        digest: Digest,
        spec: Spec,
    ) -> Result<Finished, GuestError> {
        let named = request_id.by_caller.then_some(request_id.id.as_str());
        let (call, caller) = {
            let mut table = self.table();
            let known = named.map_or(Known::Nothing, |id| table.find(id, digest));
            let call = match known {
                Known::Living(call) => call,
                Known::Ended(finished) => return Ok(finished),
                Known::Another => return Err(conflict("the request id stands for another request")),
                Known::Forgotten => return Err(conflict("the call has ended and its result is no longer kept")),
                Known::Nothing if *self.stopping.borrow() => return Ok(Finished::never_started(Kill::Stopping)),
                Known::Nothing => {
                    let grace = if named.is_some() { self.settings.orphan_grace } else { Duration::ZERO };
                    let call = Call::new(grace);
                    let number = table.begin(&call, named.map(|id| (id, digest)));
                    self.living.send_modify(|count| *count += 1);
                    let task = Arc::clone(self).drive(number, request_id.clone(), Arc::clone(&call), spec);
                    tokio::spawn(task);
                    call
                }
            };
            let caller = Caller::of(&call);
            (call, caller)
        };
        let finished = call.wait().await;
        drop(caller);
        Ok(finished)
    }

    /// Ends the call with this request id and waits until it has; `false` where none is known.
    pub(in crate::guest) async fn cancel(&self, id: &str) -> bool {
        let known = self.table().named(id);
        match known {
            Known::Nothing | Known::Another => false,
            Known::Ended(_) | Known::Forgotten => true,
            Known::Living(call) => {
                call.kill(Kill::Cancelled);
                drop(tokio::time::timeout(self.settings.kill_grace + END_DEADLINE, call.wait()).await);
                true
            }
        }
    }

    /// Takes no further call, lets running ones end within `drain`, then ends them.
    pub async fn stop(&self, drain: Duration) {
        self.stopping.send_replace(true);
        if self.all_ended(drain).await {
            return;
        }
        for call in self.table().living() {
            call.kill(Kill::Stopping);
        }
        if !self.all_ended(self.settings.kill_grace + END_DEADLINE).await {
            tracing::error!("calls are still running though they were killed");
        }
    }

    async fn all_ended(&self, limit: Duration) -> bool {
        let mut living = self.living.subscribe();
        tokio::time::timeout(limit, living.wait_for(|count| *count == 0)).await.is_ok()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task of one call, from its place in the queue to its answer.
    async fn drive(self: Arc<Self>, number: u64, request_id: RequestId, call: Arc<Call>, spec: Spec) {
        let begun = Instant::now();
        let process_id = spec.process_id.clone();
        // a task of its own, so that a bug that panics in it is an answer too
        let work = tokio::spawn(Arc::clone(&self).work(Arc::clone(&call), spec));
        let finished = work.await.unwrap_or_else(|error| {
            tracing::error!(request_id = request_id.id, %error, "a call's task failed");
            Finished::fault()
        });
        tracing::info!(
            request_id = request_id.id,
            process_id,
            outcome = finished.summary(),
            ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "call ended"
        );
        self.table().end(number, request_id.by_caller.then_some(request_id.id.as_str()), &finished);
        call.finish(finished);
        self.living.send_modify(|count| *count -= 1);
    }

    async fn work(self: Arc<Self>, call: Arc<Call>, spec: Spec) -> Finished {
        let kib = spec.input_len() / 1024 + 1;
        let Ok(_input) = Arc::clone(&self.input).try_acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)) else {
            return Finished::no_slot(super::slots::NoSlot::QueueFull);
        };
        let mut kill = call.wishes();
        let mut stopping = self.stopping.subscribe();
        let slot = tokio::select! {
            biased;
            wish = kill.wait_for(Option::is_some) => {
                let why = wish.ok().and_then(|wish| *wish).unwrap_or(Kill::CallerGone);
                return Finished::never_started(why);
            }
            _ = stopping.wait_for(|stopping| *stopping) => return Finished::never_started(Kill::Stopping),
            slot = self.slots.take() => match slot {
                Ok(slot) => slot,
                Err(why) => return Finished::no_slot(why),
            },
        };
        let process_id = spec.process_id.clone();
        let outcome = supervise(spec, Arc::clone(&self.environs), kill).await;
        drop(slot);
        match outcome {
            Ok(outcome) => Finished::of_run(&process_id, outcome),
            Err(error) => Finished::not_spawned(&error),
        }
    }
}
