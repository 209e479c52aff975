//! What is told of one call's program: its start, its output, its end, in this order and each in its place.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{super::process::Observer, Bus, ring::now};
use crate::protocol::{
    ErrorCode, EventName, ExecExitedEvent, ExecOutputEvent, ExecResult, ExecStartedEvent, FrameKind,
};

/// Most bytes of output in one event.
const PIECE: usize = 16 * 1024;

/// Tells of one call. Whoever tells holds the lock, so that nothing comes before the start or after the end.
#[derive(Debug)]
pub(in crate::guest) struct CallEvents {
    bus: Arc<Bus>,
    process_id: Arc<str>,
    request_id: String,
    session: Option<String>,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// With what is told at the start.
    Waiting {
        argv: Option<Vec<String>>,
        script_sha256: Option<String>,
    },
    Running {
        pid: u32,
        since: Instant,
    },
    Ended,
}

impl CallEvents {
    /// Of a call that has not been started.
    pub(in crate::guest) fn new(
        bus: &Arc<Bus>,
        process_id: Arc<str>,
        request_id: String,
        session: Option<String>,
        argv: Option<Vec<String>>,
        script_sha256: Option<String>,
    ) -> Arc<Self> {
        let stage = Mutex::new(Stage::Waiting { argv, script_sha256 });
        Arc::new(Self { bus: Arc::clone(bus), process_id, request_id, session, stage })
    }

    /// The call has ended. Where no program was started there is nothing to tell: its caller has been told.
    pub(in crate::guest) fn ended(&self, result: Result<&ExecResult, ErrorCode>) {
        let mut stage = self.stage();
        let Stage::Running { pid, since } = std::mem::replace(&mut *stage, Stage::Ended) else { return };
        let event = ExecExitedEvent {
            ts: now(),
            process_id: self.process_id.to_string(),
            request_id: self.request_id.clone(),
            session: self.session.clone(),
            pid,
            rc: result.ok().map(|result| result.rc),
            signal: result.ok().and_then(|result| result.signal),
            timed_out: result.is_ok_and(|result| result.timed_out),
            error: result.err().map(|code| code.as_str().to_owned()),
            duration_ms: match result {
                Ok(result) => result.duration_ms,
                Err(_) => u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            },
        };
        self.bus.emit(EventName::ExecExited, &event);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for CallEvents {
    fn started(&self, pid: u32) {
        let mut stage = self.stage();
        let running = Stage::Running { pid, since: Instant::now() };
        let Stage::Waiting { argv, script_sha256 } = std::mem::replace(&mut *stage, running) else { return };
        let event = ExecStartedEvent {
            ts: now(),
            process_id: self.process_id.to_string(),
            request_id: self.request_id.clone(),
            session: self.session.clone(),
            pid,
            argv,
            script_sha256,
            truncated_bytes: None,
        };
        self.bus.emit(EventName::ExecStarted, &event);
    }

    fn output(&self, kind: FrameKind, bytes: &[u8]) {
        if !self.bus.wants_output() {
            return;
        }
        let stream = if kind == FrameKind::Stderr { "stderr" } else { "stdout" };
        let stage = self.stage();
        if !matches!(*stage, Stage::Running { .. }) {
            return;
        }
        for piece in pieces(bytes) {
            let text = std::str::from_utf8(piece).ok().map(str::to_owned);
            let event = ExecOutputEvent {
                ts: now(),
                process_id: self.process_id.to_string(),
                stream: stream.to_owned(),
                data_b64: text.is_none().then(|| BASE64_STANDARD.encode(piece)),
                text,
            };
            self.bus.emit(EventName::ExecOutput, &event);
        }
    }
}

/// Cuts output into pieces, between characters where it is text.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut end = bytes.len().min(PIECE);
        if end == 0 {
            return None;
        }
        if end < bytes.len() {
            // the second and later bytes of a character; a sequence of more than three of them is none
            let back = (0..4).find(|back| bytes[end - back] & 0xc0 != 0x80).unwrap_or(0);
            end -= back;
        }
        let (piece, rest) = bytes.split_at(end);
        bytes = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_are_the_whole_and_text_stays_text(
            text in "[aé\u{2028}😀]{0,50}", times in 0..1500_usize, more in any::<Vec<u8>>(),
        ) {
            let text = text.repeat(times);
            prop_assert!(pieces(text.as_bytes()).all(|piece| std::str::from_utf8(piece).is_ok()));
            let bytes = [text.as_bytes(), &more, &vec![0x80; 40_000]].concat();
            prop_assert!(pieces(&bytes).all(|piece| (1..=PIECE).contains(&piece.len())));
            prop_assert_eq!(pieces(&bytes).collect::<Vec<_>>().concat(), bytes);
        }
    }
}
