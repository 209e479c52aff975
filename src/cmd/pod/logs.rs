//! `podlink pod logs`.

use std::io::{self, IsTerminal as _};

use super::{
    super::output::without_control,
    Exit, Failure, Outcome, PodChoice, Printer, block_on, job,
    passing::{Halt, Passing},
    signal::Interrupts,
};
use crate::host::{
    logs::{LogEntry, LogOrigin, LogsEvent, LogsRequest, LogsSettings, pod_logs},
    terminal,
};

/// Show a pod's logs, its container's, agent's and installation's, in the order of time; or a job's output
///
/// In front of each line stands where it was said. A source that cannot be read is told of on stderr, and the others go
/// on. It is for the eye: whether the guest is ready only `podlink pod wait-ready` tells.
///
/// With a job's id (`p-…`) it is what the job wrote, from the oldest byte that is still kept: stdout on stdout, stderr
/// on stderr, exit code 0 whatever the job's is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod logs --tail 20
  podlink pod logs -f                  go on until the pod ends, or Ctrl-C
  podlink pod logs --source agent --since 10m
  podlink pod logs p-3f2a              what a job has written; its id may be shortened
  podlink pod logs -f --offset 4096 p-3f2a")]
pub(super) struct LogsArgs {
    /// A job's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    pod: PodChoice,
    /// Go on with what is said from now on, until the pod ends, or the job
    #[arg(long, short)]
    follow: bool,
    /// No more than this many of the last lines of each source
    #[arg(long, value_name = "LINES", conflicts_with = "id")]
    tail: Option<u32>,
    /// Only this source (can be repeated) [default: all that the pod has]
    #[arg(long, value_name = "SOURCE", conflicts_with = "id")]
    source: Vec<SourceName>,
    /// Nothing older than this: a time such as 2026-11-29T14:00:00Z, or how long ago, such as 90s, 10m, 2h or 1d
    #[arg(long, value_name = "WHEN", conflicts_with = "id", value_parser = when)]
    since: Option<jiff::Timestamp>,
    /// One JSON object a line: `time`, `source` and `text`
    #[arg(long, conflicts_with = "id")]
    pub(super) json: bool,
    /// Begin at this byte of the job's output
    #[arg(long, value_name = "N", requires = "id")]
    offset: Option<u64>,
}

pub(super) fn run(args: &LogsArgs, printer: Printer) -> Outcome {
    match &args.id {
        Some(id) if id.starts_with(job::PREFIX) => of_job(args, id, printer),
        Some(id) => Err(Failure::usage(format!(
            "{id:?} is no job's id, which begins with {}; another pod's log is `podlink pod logs --pod {id}`",
            job::PREFIX
        ))),
        None => of_pod(args, printer),
    }
}

fn of_pod(args: &LogsArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let request = LogsRequest {
        origins: args.source.iter().map(|source| source.origin()).collect(),
        follow: args.follow,
        tail: args.tail,
        since: args.since,
    };
    let screen = io::stdout().is_terminal();
    let exit = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let show = |event| match event {
            LogsEvent::Line(entry) if printer.is_json() => printer.json(&line_of(&entry)),
            LogsEvent::Line(entry) => printer.line(&shown(&entry, screen)),
            LogsEvent::Unreadable(origin, error) => {
                printer.note(&format!("podlink: the {} log cannot be read: {error}", origin.as_str()));
            }
        };
        let reading = async {
            tokio::select! {
                read = pod_logs(&pod, &request, &LogsSettings::DEFAULT, show) => {
                    read.map(|()| Exit::SUCCESS).map_err(Failure::from)
                }
                // a log that says nothing would keep a command that nobody listens to
                closed = terminal::stdout_closed(), if args.follow => {
                    closed.map(|()| Exit::UNREAD).map_err(Failure::from)
                }
            }
        };
        interrupts.or(reading).await
    })?;
    Ok(exit)
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SourceName {
    /// The container, which has the VM's own output
    Container,
    /// The agent in the guest
    Agent,
    /// The installation of the guest
    Install,
}

impl SourceName {
    const fn origin(self) -> LogOrigin {
        match self {
            Self::Container => LogOrigin::Container,
            Self::Agent => LogOrigin::Agent,
            Self::Install => LogOrigin::Install,
        }
    }
}

#[derive(Debug, serde::Serialize)]
struct JsonLine<'a> {
    time: Option<String>,
    source: &'static str,
    text: &'a str,
}

fn line_of(entry: &LogEntry) -> JsonLine<'_> {
    JsonLine { time: entry.time.map(|time| time.to_string()), source: entry.origin.as_str(), text: &entry.text }
}

/// The line behind its source. On a terminal it cannot do more than be read.
fn shown(entry: &LogEntry, screen: bool) -> String {
    let source = entry.origin.as_str();
    if !screen {
        return format!("{source:<9} | {}", entry.text);
    }
    let colour = match entry.origin {
        LogOrigin::Container => 36,
        LogOrigin::Agent => 32,
        LogOrigin::Install => 35,
    };
    // a progress bar draws over itself: what stands after the last return is what one would see
    let text = entry.text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    format!("\x1b[{colour}m{source:<9} |\x1b[0m {}", without_control(text))
}

/// A time, or a time ago.
fn when(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let wrong = || "not a time such as 2026-11-29T14:00:00Z, nor a number with s, m, h or d behind it".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u32 = text.strip_suffix(unit).and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
    let ago = std::time::Duration::from_secs(u64::from(count) * seconds);
    jiff::Timestamp::now().checked_sub(ago).map_err(|_| "that is before time began".to_owned())
}

fn of_job(args: &LogsArgs, id: &String, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let mut passing = Passing::new(printer)?;
        let showing = async {
            let info = job::resolve(&client, &pod, std::slice::from_ref(id)).await?.remove(0);
            let mut stream = client.job(&info.process_id).output(args.offset, args.follow).await?;
            match passing.all_of(&mut stream).await {
                // it was ended, or failed: that is no part of its output
                Err(Halt::Failed(error)) if error.answer().is_some_and(|answer| answer.process_id.is_some()) => Ok(()),
                ended => ended.map(drop),
            }
        };
        let shown = tokio::select! {
            shown = showing => shown,
            exit = interrupts.next() => Err(Halt::Interrupted(exit)),
            // a job that says nothing would keep a command that nobody listens to
            closed = terminal::stdout_closed() => Err(closed.map_or_else(Halt::Failed, |()| Halt::Unread)),
        };
        match shown {
            Ok(()) => Ok(passing.exit(Exit::SUCCESS)),
            Err(halt) => halt.end("interrupted"),
        }
    })
}
