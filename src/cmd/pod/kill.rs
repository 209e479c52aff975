//! `podlink pod kill`.

use std::time::Duration;

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, job, passing::processes, signal::Interrupts};
use crate::{
    host::{AgentClient, Error, ErrorKind},
    protocol::{ProcessInfo, ProcessState},
};

/// The most that the agent takes for --grace.
const MAX_GRACE: f64 = 60.0;

/// End jobs with everything they started, or send them a signal
///
/// Without --signal the whole tree of each is ended: asked first, killed after the grace time. What is told is how many
/// processes ended; where one survived, its number, and the exit code is 125.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod kill p-3f2a                        an id may be shortened
  podlink pod kill --grace 0 p-3f2a p-77c1       at once
  podlink pod kill --signal HUP p-3f2a           a signal to the job's program alone; `-9` is `--signal 9`
  podlink pod kill --signal STOP --tree p-3f2a   to each process of the job")]
pub(super) struct KillArgs {
    /// The jobs' ids, or the beginnings of them
    #[arg(value_name = "ID", required = true, allow_negative_numbers = true)]
    ids: Vec<String>,
    #[command(flatten)]
    pod: PodChoice,
    /// Send this signal, by its name or number, and do nothing else
    #[arg(long, short, value_name = "NAME", conflicts_with = "grace")]
    signal: Option<String>,
    /// With --signal: to every process of the job
    #[arg(long, requires = "signal")]
    tree: bool,
    /// Seconds from asking to killing
    #[arg(long, value_name = "SECS", value_parser = grace)]
    grace: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

fn grace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=MAX_GRACE).contains(&seconds) => Ok(seconds),
        _ => Err(format!("not a number of seconds from 0 to {MAX_GRACE}")),
    }
}

/// What came of one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Done {
    Ended {
        process_id: String,
        killed: u64,
        survivors: Vec<u32>,
        /// It had waited for its turn, and nothing of it ran.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        was_queued: bool,
    },
    Signalled {
        process_id: String,
        signalled: u64,
    },
    Failed {
        process_id: String,
        error: &'static str,
        detail: String,
    },
}

/// `-9` as kill(1) has it: clap takes it for an id.
fn with_number(mut args: KillArgs) -> Result<KillArgs, Failure> {
    let Some(number) = args.ids[0].strip_prefix('-').map(str::to_owned) else { return Ok(args) };
    args.ids.remove(0);
    if args.ids.is_empty() {
        return Err(Failure::usage(format!("-{number}: the id of a job is missing")));
    }
    if args.signal.is_some() || args.grace.is_some() {
        return Err(Failure::usage(format!("-{number} is a signal of its own; leave out --signal and --grace")));
    }
    args.signal = Some(number);
    Ok(args)
}

pub(super) fn run(args: KillArgs, printer: Printer) -> Outcome {
    let args = &with_number(args)?;
    let (pod, client) = job::client_of(&args.pod)?;
    let done = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let killing = async {
            let mut done = Vec::new();
            for info in job::resolve(&client, &pod, &args.ids).await? {
                // one that fails is no reason to leave the others alive
                done.push(end(&client, &info, args).await.unwrap_or_else(|error| Done::Failed {
                    process_id: info.process_id,
                    error: error.kind().as_str(),
                    detail: format!("{:#}", anyhow::Error::from(error)),
                }));
            }
            Ok(done)
        };
        interrupts.or(killing).await
    })?;
    let failed = done.iter().any(|done| match done {
        Done::Ended { survivors, .. } => !survivors.is_empty(),
        Done::Signalled { .. } => false,
        Done::Failed { .. } => true,
    });
    if printer.is_json() {
        printer.json(&serde_json::json!({ "processes": done }));
    } else {
        for done in &done {
            tell(done, printer);
        }
    }
    Ok(if failed { Exit::FAILED } else { Exit::SUCCESS })
}

async fn end(client: &AgentClient, info: &ProcessInfo, args: &KillArgs) -> Result<Done, Error> {
    let (job, process_id) = (client.job(&info.process_id), info.process_id.clone());
    if let Some(signal) = &args.signal {
        let signalled = job.signal(signal, args.tree).await?;
        if signalled == 0 {
            return Err(Error::new(
                ErrorKind::Rejected,
                format!("{process_id} has no process that could be sent {signal}"),
            ));
        }
        return Ok(Done::Signalled { process_id, signalled });
    }
    let was_queued = info.state == ProcessState::Queued;
    let ended = job.kill_and_keep(args.grace.map(Duration::from_secs_f64)).await?;
    let was_queued = was_queued && ended.killed == 0;
    Ok(Done::Ended { process_id, killed: ended.killed, survivors: ended.survivors, was_queued })
}

fn tell(done: &Done, printer: Printer) {
    match done {
        Done::Ended { process_id, was_queued: true, .. } => {
            printer.line(&format!("{process_id} was taken out of the line"));
        }
        Done::Ended { process_id, killed: 0, survivors, .. } if survivors.is_empty() => {
            printer.line(&format!("{process_id} had ended"));
        }
        Done::Ended { process_id, killed, survivors, .. } => {
            printer.line(&format!("{process_id} is ended: {}", processes(*killed)));
            if !survivors.is_empty() {
                printer.error(&format!("processes of {process_id} could not be ended: {survivors:?}"));
            }
        }
        Done::Failed { process_id, detail, .. } => printer.error(&format!("{process_id}: {detail}")),
        Done::Signalled { process_id, signalled } => {
            printer.line(&format!("{process_id}: {} signalled", processes(*signalled)));
        }
    }
}
