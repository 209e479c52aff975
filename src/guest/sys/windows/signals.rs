//! What asks the agent to end.

use std::io;

use crate::guest::signals::Signal;

/// All of it, from the moment of listening on.
#[derive(Debug)]
pub(in crate::guest) struct Signals {}

impl Signals {
    pub(in crate::guest) fn listen() -> io::Result<Self> {
        todo!()
    }

    pub(in crate::guest) async fn next(&mut self) -> Signal {
        todo!()
    }
}
