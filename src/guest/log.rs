//! The agent's log: text or JSON, to stderr or a file, and never a reason to wait.
//!
//! Implementation note: lines go through a bounded queue to a thread that writes them. A full disk or a pipe that
//! nobody reads must not hold up a request; lines that find the queue full are dropped and counted, and the count is
//! written when there is room again.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use anyhow::Context as _;
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt::MakeWriter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use super::events::LogTap;

/// Variable with the filter, as `tracing` has it: `info`, `debug`, `podlink=trace`, …
const FILTER_VARIABLE: &str = "PODLINK_LOG";

/// Lines that may wait to be written: some seconds of a very busy agent.
const QUEUE: usize = 8192;

/// How long the end of the process waits for the last lines.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Writes the last lines when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct LogGuard {
    sender: SyncSender<Entry>,
    tap: LogTap,
}

impl LogGuard {
    /// Where an agent gets the log's warnings from, to tell them as events.
    pub fn tap(&self) -> LogTap {
        self.tap.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, wait) = sync_channel(1);
        if self.sender.try_send(Entry::Flush(done)).is_ok() {
            // an error means that it took too long or the thread is gone: there is nowhere to say so
            wait.recv_timeout(FLUSH_PATIENCE).ok();
        }
    }
}

/// Starts the log of this process, panics included; the file is appended to and only its owner may read it.
///
/// # Errors
/// When the file cannot be opened, the filter does not read, or there is a log already.
pub fn start_log(file: Option<&Path>, format: LogFormat) -> anyhow::Result<LogGuard> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).with_context(|| format!("{FILTER_VARIABLE} is not a filter: {text:?}"))?
        }
        _ => EnvFilter::new("info"),
    };
    let (out, ansi): (Box<dyn Write + Send>, bool) = match file {
        Some(path) => {
            let file = super::sys::open_private_append(path)
                .with_context(|| format!("cannot open the log file {}", path.display()))?;
            (Box::new(file), false)
        }
        None => (Box::new(io::stderr()), io::stderr().is_terminal()),
    };
    let (sender, receiver) = sync_channel(QUEUE);
    let lost = Arc::new(AtomicU64::new(0));
    let lines = Lines { sender: sender.clone(), lost: Arc::clone(&lost) };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&receiver, out, &lost))
        .context("cannot start the thread that writes the log")?;
    let layer = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(lines);
    let layer = match format {
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let tap = LogTap::default();
    let started = tracing_subscriber::registry().with(layer).with(tap.layer()).try_init();
    started.map_err(|error| anyhow::anyhow!("this process has a log already: {error}"))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(LogGuard { sender, tap })
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(message, place, backtrace, "panic");
}

enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Hands each line to the queue.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Write for Lines {
    /// The subscriber hands over whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Entry::Line(line.to_owned())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn write_all(receiver: &Receiver<Entry>, mut out: impl Write, lost: &AtomicU64) {
    for entry in receiver {
        match entry {
            Entry::Line(line) => {
                let count = lost.swap(0, Ordering::Relaxed);
                if count > 0 {
                    // where the log cannot be written there is nowhere to say so, here and below
                    writeln!(out, "{{\"lost_log_lines\":{count}}}").ok();
                }
                out.write_all(&line).ok();
            }
            Entry::Flush(done) => {
                out.flush().ok();
                done.try_send(()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_line_with_its_message_in_its_span() {
        let (sender, receiver) = sync_channel(16);
        let lines = Lines { sender, lost: Arc::default() };
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(lines).finish();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("request", id = "mine").entered();
            std::panic::catch_unwind(|| panic!("on {}", "purpose")).unwrap_err();
        });
        std::panic::set_hook(before);
        let mut out = Vec::new();
        write_all(&receiver, &mut out, &AtomicU64::new(0));
        let out = String::from_utf8(out).unwrap();
        let line = out.lines().next().unwrap();
        assert!(line.contains("on purpose") && line.contains("mine") && line.contains("log.rs"), "{out}");
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_told() {
        let (sender, receiver) = sync_channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let mut lines = Lines { sender, lost: Arc::clone(&lost) };
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            lines.write_all(line.as_bytes()).unwrap();
        }
        drop(lines);
        let mut out = Vec::new();
        write_all(&receiver, &mut out, &lost);
        assert_eq!(String::from_utf8(out).unwrap(), "{\"lost_log_lines\":2}\na\nb\n");
    }
}
