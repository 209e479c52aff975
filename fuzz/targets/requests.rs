//! What callers send as JSON: any bytes are understood or refused, and what was understood says the same when it is
//! written out and read again.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use podlink::protocol::{
    AttachControl, AttachRequest, ErrorBody, ExecRequest, ExecResult, Gap, Health, ProcessInfo, SignalRequest, Started,
    StreamEnd, SystemProcesses, SystemSockets, TerminalSize, TimeoutSec, Whoami,
};
use serde::{Serialize, de::DeserializeOwned};

fuzz_target!(|data: &[u8]| {
    if let Some(mut request) = read::<ExecRequest>(data) {
        plain(&mut request);
        comes_back(&request);
    }
    if let Some(mut request) = read::<AttachRequest>(data) {
        plain(&mut request.exec);
        comes_back(&request);
    }
    check::<SignalRequest>(data);
    check::<AttachControl>(data);
    check::<TerminalSize>(data);
    // and what a host reads from an agent that may be none
    check::<ExecResult>(data);
    check::<ErrorBody>(data);
    check::<Health>(data);
    check::<Whoami>(data);
    check::<Started>(data);
    check::<Gap>(data);
    check::<ProcessInfo>(data);
    check::<SystemProcesses>(data);
    check::<SystemSockets>(data);
    // of three forms the first that fits is taken, which need not be the same one after fields were dropped
    let _ = read::<StreamEnd>(data);
});

/// A time-out that is no number is kept only for the answer that refuses it.
fn plain(request: &mut ExecRequest) {
    if matches!(request.timeout_sec, Some(TimeoutSec::NotANumber(_))) {
        request.timeout_sec = None;
    }
}

fn read<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Some(value) = read::<T>(data) {
        comes_back(&value);
    }
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_vec(value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    assert_eq!(*value, again);
}
