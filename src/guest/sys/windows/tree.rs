//! All processes of one call, however they try to get away, and their end: a job object.

use std::{io, path::Path, time::Instant};

use tokio::process::Command;

use super::signal_names::SignalNumber;

/// Where calls' trees are made.
#[derive(Debug)]
pub(crate) struct TreeHome {}

impl TreeHome {
    /// Finds out what this system offers.
    pub(crate) fn detect(_agent_id: &str, _use_cgroups: bool, _program: Option<&Path>) -> Self {
        Self {}
    }

    /// What holds the processes of a call: `job`.
    pub(crate) fn kind(&self) -> &'static str {
        todo!()
    }

    /// The tree of a new call.
    pub(crate) fn plant(&self, _process_id: &str) -> CallTree {
        todo!()
    }

    /// The tree of a call that an agent which crashed had not ended.
    pub(crate) fn find(&self, _process_id: &str) -> CallTree {
        todo!()
    }
}

/// What came of ending a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Processes that were alive when it began, or turned up meanwhile, and are dead.
    pub killed: u64,
    /// Processes that are alive all the same.
    pub survivors: Vec<u32>,
}

/// The processes of one call.
#[derive(Debug)]
pub(crate) struct CallTree {}

impl CallTree {
    /// Makes the command start inside the tree.
    pub(crate) fn hold(&mut self, _command: &mut Command) -> io::Result<()> {
        todo!()
    }

    /// Says which child the command has become.
    pub(crate) fn led_by(&mut self, _child: u32) {
        todo!()
    }

    /// The process number of the program itself.
    pub(crate) fn leader(&self) -> Option<u32> {
        todo!()
    }

    /// Sends a signal to the program, which must not have ended.
    pub(crate) fn signal_leader(&self, _signal: SignalNumber) -> io::Result<()> {
        todo!()
    }

    /// Sends a signal to everybody in it, and tells how many got it.
    pub(crate) fn signal_all(&self, _signal: SignalNumber) -> u64 {
        todo!()
    }

    /// Ends everybody in it.
    pub(crate) async fn end(&self, _by: impl Fn() -> Instant + Send) -> Ended {
        todo!()
    }

    /// Gives up what holds it; processes that live on are not disturbed. `false` while it has to be asked again.
    pub(crate) fn release(&self) -> bool {
        todo!()
    }
}
