//! `podlink pod down`.

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts};
use crate::host::{
    EngineKind,
    engine::{self, EngineSettings, Stopped},
};

/// Stop a pod
///
/// The guest is shut down and its container removed; its disk, its settings and its token stay. A pod that does not
/// run is a success.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod down
  podlink pod down --pod lab --json")]
pub(super) struct DownArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct DownJson<'a> {
    pod: &'a str,
    engine: EngineKind,
    stopped: bool,
    killed: bool,
}

pub(super) fn run(args: &DownArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let stopped = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { engine::down(&pod, &EngineSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&DownJson {
            pod: pod.name().as_str(),
            engine: pod.settings().engine,
            stopped: stopped != Stopped::WasNotRunning,
            killed: stopped == Stopped::Killed,
        });
    } else {
        let how = match stopped {
            Stopped::Now => "is down",
            Stopped::Killed => "did not stop by itself and was killed; it is down",
            Stopped::WasNotRunning => "was not running",
        };
        printer.line(&format!("pod {} {how}", pod.name()));
    }
    Ok(Exit::SUCCESS)
}
