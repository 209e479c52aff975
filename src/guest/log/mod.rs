//! The agent's log: text or JSON, to stderr or a file, and never a reason to wait.
//!
//! Line by line it goes through a bounded queue to a thread that writes it, to a file that is turned over when
//! it has grown; what has no file keeps its newest lines in memory, so that they can be asked for over the wire.

mod cut;
mod layer;
mod line;
mod read;
mod ring;
mod rotate;
mod sink;

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _};

pub(super) use self::{
    cut::cut,
    layer::AUDIT,
    read::{FileReader, Log, Step, turned_over},
    ring::Ring,
};
use self::{
    layer::Lines,
    rotate::RotatingFile,
    sink::{Out, Plain, Sink},
};
use super::events::LogTap;
pub use line::LogFormat;
pub use rotate::Rotation;

/// Variable with the filter, as `tracing` has it: `info`, `debug`, `podlink=trace`, …
const FILTER_VARIABLE: &str = "PODLINK_LOG";

/// Where the log goes, and how it looks.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The file; stderr where there is none.
    pub file: Option<PathBuf>,
    /// A file of their own for the lines that say who changed what.
    pub audit_file: Option<PathBuf>,
    /// How a line looks.
    pub format: LogFormat,
    /// When a file is turned over.
    pub rotation: Rotation,
}

/// The log of this process. Dropped, it writes the last lines.
#[must_use]
#[derive(Debug)]
pub struct LogGuard {
    sinks: Vec<Arc<Sink>>,
    source: LogSource,
    tap: LogTap,
}

/// Where the log of this process can be read.
#[derive(Debug, Clone)]
pub struct LogSource(pub(super) Log);

impl LogGuard {
    /// Where the log can be read, for an agent that is to hand it out.
    pub fn source(&self) -> LogSource {
        self.source.clone()
    }

    /// Where an agent gets the log's warnings from, to tell them as events.
    pub fn tap(&self) -> LogTap {
        self.tap.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        for sink in &self.sinks {
            sink.flush();
        }
    }
}

/// Starts the log of this process, panics included; files are appended to and only their owner may read them.
///
/// # Errors
/// When a file cannot be opened, the filter does not read, or there is a log already.
pub fn start_log(settings: &LogSettings) -> anyhow::Result<LogGuard> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).with_context(|| format!("{FILTER_VARIABLE} is not a filter: {text:?}"))?
        }
        _ => EnvFilter::new("info"),
    };
    // who changed what is said whatever else is not
    let filter = filter.add_directive(format!("{AUDIT}=info").parse().context("the filter of the audit lines")?);
    let ring = settings.file.is_none().then(Ring::new);
    let (out, ansi): (Box<dyn Out>, bool) = match &settings.file {
        Some(path) => (file(path, settings.rotation, "log")?, false),
        None => (Box::new(Plain(io::stderr())), io::stderr().is_terminal()),
    };
    let source = match (&settings.file, &ring) {
        (Some(path), _) => Log::File(absolute(path)),
        (None, Some(ring)) => Log::Ring(Arc::clone(ring)),
        (None, None) => Log::None,
    };
    let format = settings.format;
    let start = |name, out, ring| {
        Sink::start(name, out, format, ring).map(Arc::new).context("cannot start the thread that writes the log")
    };
    let audit = match &settings.audit_file {
        Some(path) => Some(start("audit", file(path, settings.rotation, "audit")?, None)?),
        None => None,
    };
    let log = start("log", out, ring)?;
    let sinks = std::iter::once(&log).chain(&audit).cloned().collect();
    let lines = Lines { format, ansi, log, audit };
    let tap = LogTap::default();
    // the filter is the lines' own: what is told as events is not up to it
    let layers = tracing_subscriber::registry().with(lines.with_filter(filter)).with(tap.layer());
    tracing::subscriber::set_global_default(layers)
        .map_err(|error| anyhow::anyhow!("this process has a log already: {error}"))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(LogGuard { sinks, source: LogSource(source), tap })
}

fn file(path: &Path, rotation: Rotation, what: &str) -> anyhow::Result<Box<dyn Out>> {
    let file = RotatingFile::open(absolute(path), rotation)
        .with_context(|| format!("cannot open the {what} file {}", path.display()))?;
    Ok(Box::new(file))
}

/// A path that stays right whatever becomes of the working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(panic = message, place, backtrace, "panic");
}
