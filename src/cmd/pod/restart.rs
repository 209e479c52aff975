//! `podlink pod restart`.

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts};
use crate::host::{
    self, EngineKind,
    engine::{self, EngineSettings, Started},
};

/// Stop a pod and start it again
///
/// The guest gets two minutes to shut down. Where the settings have changed the container is made anew, on the same
/// disk. A pod that does not run is started.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod restart
  podlink pod restart --pod lab && podlink pod wait-ready --pod lab")]
pub(super) struct RestartArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct RestartJson<'a> {
    pod: &'a str,
    engine: EngineKind,
    recreated: bool,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(super) fn run(args: &RestartArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let stale = host::before_up(&pod)?;
    let started = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { engine::restart(&pod, &EngineSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if let Some(stale) = &stale {
        stale.said(&pod);
    }
    let note = stale.map(|stale| stale.note);
    let recreated = started == Started::Recreated;
    if printer.is_json() {
        let (engine, address) = (pod.settings().engine, pod.address().to_string());
        printer.json(&RestartJson { pod: pod.name().as_str(), engine, recreated, address, note });
    } else {
        let how = if recreated { "is up again, made anew from its changed settings" } else { "is up again" };
        printer.line(&format!("pod {} {how}", pod.name()));
        if let Some(note) = note {
            printer.note(&format!("note: {note}"));
        }
    }
    Ok(Exit::SUCCESS)
}
