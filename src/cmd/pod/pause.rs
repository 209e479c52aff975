//! `podlink pod pause` and `podlink pod resume`.

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts, time_sync};
use crate::host::engine::{self, EngineSettings};

/// Freeze a pod: its guest keeps its memory and gets no processor time
///
/// A call that is under way waits, and may reach its time limit meanwhile. A local pod has no container and cannot be
/// paused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod pause
  podlink pod pause --pod lab --json")]
pub(super) struct PauseArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Let a paused pod run on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod resume
  podlink pod resume --pod lab && podlink pod wait-ready --pod lab")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct PausedJson<'a> {
    pod: &'a str,
    paused: bool,
}

pub(super) fn pause(args: &PauseArgs, printer: Printer) -> Outcome {
    set(&args.pod, printer, true)
}

pub(super) fn resume(args: &ResumeArgs, printer: Printer) -> Outcome {
    set(&args.pod, printer, false)
}

fn set(choice: &PodChoice, printer: Printer, paused: bool) -> Outcome {
    let pod = choice.load()?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let setting = async {
            let settings = EngineSettings::DEFAULT;
            let set = if paused { engine::pause(&pod, &settings).await } else { engine::resume(&pod, &settings).await };
            set.map_err(Failure::from)
        };
        interrupts.or(setting).await
    })?;
    if !paused {
        time_sync::along(&pod, printer)?;
    }
    if printer.is_json() {
        printer.json(&PausedJson { pod: pod.name().as_str(), paused });
    } else {
        printer.line(&format!("pod {} {}", pod.name(), if paused { "is paused" } else { "runs" }));
    }
    Ok(Exit::SUCCESS)
}
