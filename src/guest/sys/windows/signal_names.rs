//! Signals by name: what can be done to a process here.

use std::str::FromStr;

use thiserror::Error;

/// A signal that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct SignalNumber(i32);

/// What was given is no signal that can be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no signal {0:?} to send")]
pub(in crate::guest) struct UnknownSignal(String);

impl FromStr for SignalNumber {
    type Err = UnknownSignal;

    fn from_str(_text: &str) -> Result<Self, UnknownSignal> {
        todo!()
    }
}
