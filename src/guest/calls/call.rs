//! One call as its callers see it: joined, waited for, left alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{super::process::Kill, answer::Finished};

/// One call, shared by its task and its callers.
#[derive(Debug)]
pub(super) struct Call {
    kill: watch::Sender<Option<Kill>>,
    finished: watch::Sender<Option<Finished>>,
    callers: AtomicUsize,
    /// How many have ever joined: a timer that was set for one who left is void once somebody else has come.
    joined: AtomicUsize,
    /// How long it lives without a caller.
    orphan_grace: Duration,
}

impl Call {
    /// One without callers.
    pub(super) fn new(orphan_grace: Duration) -> Arc<Self> {
        let (kill, finished) = (watch::Sender::new(None), watch::Sender::new(None));
        Arc::new(Self { kill, finished, callers: AtomicUsize::new(0), joined: AtomicUsize::new(0), orphan_grace })
    }

    /// Wishes to end it, for the task that runs it.
    pub(super) fn wishes(&self) -> watch::Receiver<Option<Kill>> {
        self.kill.subscribe()
    }

    /// Hands the answer to everybody who waits.
    pub(super) fn finish(&self, finished: Finished) {
        self.finished.send_replace(Some(finished));
    }

    /// Ends it; of several reasons the first counts.
    pub(super) fn kill(&self, why: Kill) {
        self.kill.send_if_modified(|wish| {
            let first = wish.is_none();
            wish.get_or_insert(why);
            first
        });
    }

    /// Its answer, when there is one.
    pub(super) async fn wait(&self) -> Finished {
        let mut finished = self.finished.subscribe();
        let value = finished.wait_for(Option::is_some).await.ok().and_then(|value| value.clone());
        value.unwrap_or_else(Finished::fault)
    }
}

/// A caller that waits for a call. Dropped before the call has ended, it has gone away.
pub(super) struct Caller(Arc<Call>);

impl Caller {
    /// One more who waits.
    pub(super) fn of(call: &Arc<Call>) -> Self {
        call.callers.fetch_add(1, Ordering::SeqCst);
        call.joined.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(call))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let call = Arc::clone(&self.0);
        if call.callers.fetch_sub(1, Ordering::SeqCst) > 1 || call.finished.borrow().is_some() {
            return;
        }
        if call.orphan_grace.is_zero() {
            call.kill(Kill::CallerGone);
            return;
        }
        let joined = call.joined.load(Ordering::SeqCst);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let mut finished = call.finished.subscribe();
            tokio::select! {
                _ = finished.wait_for(Option::is_some) => {}
                () = tokio::time::sleep(call.orphan_grace) => {
                    if call.callers.load(Ordering::SeqCst) == 0 && call.joined.load(Ordering::SeqCst) == joined {
                        call.kill(Kill::CallerGone);
                    }
                }
            }
        });
    }
}
