//! How a run is reached from outside while it lives.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use jiff::Timestamp;
use tokio::sync::watch;

use super::{super::sys::CallTree, input::Input};
use crate::protocol::FrameKind;

/// Why a run is to be ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kill {
    /// Its caller asked for it.
    Cancelled,
    /// Its caller went away.
    CallerGone,
    /// The agent is going down.
    Stopping,
}

/// A wish to end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Why.
    pub why: Kill,
    /// When TERM has had time enough and KILL comes.
    pub by: Instant,
}

/// That the program runs, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its number.
    pub pid: u32,
    /// When it was started.
    pub at: Timestamp,
}

/// Is told of a run as it goes; it may not take long over it.
pub(crate) trait Observer: Debug + Send + Sync {
    /// The program runs. Told before any of its output.
    fn started(&self, pid: u32);

    /// The program has written something.
    fn output(&self, kind: FrameKind, bytes: &[u8]);
}

/// What is known of a run from its start on.
#[derive(Debug)]
pub(crate) struct Live {
    observer: Arc<dyn Observer>,
    started: watch::Sender<Option<Start>>,
    reach: Mutex<Reach>,
    /// What size its terminal is to have from the first instant, in place of what the call said.
    size: Mutex<Option<(u16, u16)>>,
}

#[derive(Debug, Default)]
struct Reach {
    tree: Option<Arc<CallTree>>,
    input: Option<Arc<Input>>,
}

impl Live {
    /// Of a run that has not begun.
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { observer, started: watch::Sender::new(None), reach: Mutex::default(), size: Mutex::default() })
    }

    /// A terminal that the program is still to get has other rows and columns by now.
    pub(crate) fn ask_size(&self, rows: u16, cols: u16) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = Some((rows, cols));
    }

    /// What was asked for last.
    pub(super) fn asked_size(&self) -> Option<(u16, u16)> {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self, pid: u32, tree: Arc<CallTree>, input: Option<Arc<Input>>) {
        *self.reach.lock().unwrap_or_else(PoisonError::into_inner) = Reach { tree: Some(tree), input };
        self.observer.started(pid);
        self.started.send_replace(Some(Start { pid, at: Timestamp::now() }));
    }

    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer)
    }

    /// The program has ended: its processes, if any live on, are nobody's any more.
    pub(super) fn end(&self) {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).tree = None;
    }

    /// When the program was started, once it has been.
    pub(crate) fn start_of(&self) -> Option<Start> {
        *self.started.borrow()
    }

    /// To wait for the start.
    pub(crate) fn starting(&self) -> watch::Receiver<Option<Start>> {
        self.started.subscribe()
    }

    /// The way into the program, where it has one that stays open.
    pub(crate) fn input(&self) -> Option<Arc<Input>> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).input.clone()
    }

    /// The program's processes, while it lives.
    pub(crate) fn tree(&self) -> Option<Arc<CallTree>> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).tree.clone()
    }
}
