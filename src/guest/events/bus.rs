//! The one place where events come together.

use std::{
    cell::Cell,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::{
    Settings,
    auth::AuthFailures,
    cut::json_of,
    ring::{Batch, Cursor, Ring, Wanted, now},
};
use crate::protocol::{AgentStartedEvent, EventName, PlainEvent};

/// Digits of the agent's id that are the epoch.
const EPOCH_DIGITS: usize = 16;

thread_local! {
    /// This thread is at the ring: what is logged now, by a panic say, must not come back to it.
    static AT_THE_RING: Cell<bool> = const { Cell::new(false) };
}

/// All events of one agent.
#[derive(Debug)]
pub(in crate::guest) struct Bus {
    settings: Settings,
    ring: Mutex<Ring>,
    /// An event came. One waiter alone is woken: how many readers there are costs the emitter nothing.
    wake: Notify,
    /// Wakes the readers.
    news: watch::Sender<()>,
    closed: AtomicBool,
    /// Readers that want output.
    outputs: AtomicUsize,
    auth: AuthFailures,
}

impl Bus {
    /// One with `agent.started` in it.
    pub(in crate::guest) fn new(agent_id: &str, settings: &Settings) -> Arc<Self> {
        let epoch = agent_id.get(..EPOCH_DIGITS).unwrap_or(agent_id).to_owned();
        let bus = Self {
            settings: settings.clone(),
            ring: Mutex::new(Ring::new(epoch, settings)),
            wake: Notify::new(),
            news: watch::Sender::new(()),
            closed: AtomicBool::new(false),
            outputs: AtomicUsize::new(0),
            auth: AuthFailures::new(settings.auth_interval),
        };
        bus.emit(
            EventName::AgentStarted,
            &AgentStartedEvent {
                ts: now(),
                agent_id: agent_id.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
            },
        );
        Arc::new(bus)
    }

    /// Wakes readers and tells what was held back, for as long as it is polled.
    ///
    /// Of events that come faster than this runs, many are announced at once: a burst costs a thousand readers not a
    /// thousand times as much as one.
    pub(in crate::guest) async fn tend(self: Arc<Self>) {
        let announce = async {
            loop {
                self.wake.notified().await;
                self.news.send_replace(());
            }
        };
        let auth = async {
            loop {
                for event in self.auth.due().await {
                    self.emit(EventName::AuthFailed, &event);
                }
            }
        };
        tokio::join!(announce, auth);
    }

    /// Adds an event. Waits for nobody and cannot fail.
    pub(in crate::guest) fn emit(&self, name: EventName, data: &impl Serialize) {
        let json = json_of(data);
        self.at_the_ring(|ring| ring.push(name, &json));
        self.wake.notify_one();
    }

    /// Adds an event that has nothing but its name and time.
    pub(in crate::guest) fn emit_plain(&self, name: EventName) {
        self.emit(name, &PlainEvent { ts: now() });
    }

    /// Counts a request without the right token, and tells of it unless that was done a moment ago.
    pub(in crate::guest) fn auth_failed(&self, peer: Option<IpAddr>, path: String) {
        if let Some(event) = self.auth.failed(peer, path) {
            self.emit(EventName::AuthFailed, &event);
        }
    }

    /// Whether anybody wants to see output: a cheap question, asked for each piece of it.
    pub(in crate::guest) fn wants_output(&self) -> bool {
        self.outputs.load(Ordering::Relaxed) > 0
    }

    /// Nothing more will come: readers end once they have what there is.
    pub(in crate::guest) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.news.send_replace(());
    }

    /// Whether this thread is at the ring of any bus.
    pub(super) fn is_busy() -> bool {
        AT_THE_RING.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    pub(super) const fn outputs(&self) -> &AtomicUsize {
        &self.outputs
    }

    pub(super) fn place(&self, since: Option<&str>) -> (Cursor, Bytes) {
        self.at_the_ring(|ring| ring.place(since))
    }

    pub(super) fn read(&self, cursor: &mut Cursor, wanted: Wanted) -> Batch {
        self.at_the_ring(|ring| ring.read(cursor, wanted))
    }

    pub(super) fn alive(&self, cursor: &mut Cursor) -> Bytes {
        self.at_the_ring(|ring| ring.alive(cursor))
    }

    fn at_the_ring<T>(&self, work: impl FnOnce(&mut Ring) -> T) -> T {
        let _here = Here::new();
        work(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// For as long as this thread is at the ring, a panic included.
struct Here;

impl Here {
    fn new() -> Self {
        AT_THE_RING.set(true);
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        AT_THE_RING.set(false);
    }
}
