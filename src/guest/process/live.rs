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
}

#[derive(Debug, Default)]
struct Reach {
    tree: Option<Arc<CallTree>>,
    input: Option<Arc<Input>>,
    /// The size that the terminal of a program which is still to be started is to have, in place of what the call said.
    size: Option<(u16, u16)>,
}

impl Live {
    /// Of a run that has not begun.
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { observer, started: watch::Sender::new(None), reach: Mutex::default() })
    }

    /// Gives the program's terminal another size; where it has not been started, it begins with that.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let mut reach = self.reach.lock().unwrap_or_else(PoisonError::into_inner);
        match &reach.input {
            Some(input) => input.resize(rows, cols),
            None => reach.size = Some((rows, cols)),
        }
    }

    /// What was asked for last before the start.
    pub(super) fn asked_size(&self) -> Option<(u16, u16)> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).size
    }

    pub(super) fn start(&self, pid: u32, tree: Arc<CallTree>, input: Option<Arc<Input>>) {
        {
            let mut reach = self.reach.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(input), Some((rows, cols))) = (&input, reach.size) {
                input.resize(rows, cols); // it may have come while the program was being started
            }
            *reach = Reach { tree: Some(tree), input, size: None };
        }
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
