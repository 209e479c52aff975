//! What an agent says on stderr: passed on, and its end kept, since that is why it ended.

use std::{
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, process::ChildStderr, task::JoinHandle};

use super::super::loggable::loggable;

/// How much of the end is kept: a few lines.
const KEPT: usize = 2048;

/// How many of them are told.
const LINES: usize = 5;

/// How long its last bytes are waited for once it has ended; the pipe need not close with it, for a process that it has
/// left behind may hold it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The listener.
#[derive(Debug)]
pub(super) struct LastWords {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl LastWords {
    pub(super) fn listen(mut from: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&kept);
        let reading = tokio::spawn(async move {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = from.read(&mut chunk).await {
                // nobody need listen there
                drop(std::io::stderr().write_all(&chunk[..count]));
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..count]);
                let beyond = kept.len().saturating_sub(KEPT);
                kept.drain(..beyond);
            }
        });
        Self { kept, reading }
    }

    /// The end of what it said, on one line.
    pub(super) async fn take(mut self) -> String {
        drop(tokio::time::timeout(PATIENCE, &mut self.reading).await);
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(loggable).collect();
        lines[lines.len().saturating_sub(LINES)..].join(" | ")
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
