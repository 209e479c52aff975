//! `podlink pod up`.

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts, time_sync};
use crate::host::{
    self, EngineKind,
    engine::{self, EngineSettings, Started},
};

/// Start a pod
///
/// Starts the container by podman's or docker's compose, or the agent where the engine is local. A pod that runs
/// already is left alone, unless its settings have changed: then its container is made anew, on the same disk. A
/// paused pod is resumed. That it runs does not mean that the guest is ready: see `podlink pod wait-ready`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod up
  podlink pod up --pod lab && podlink pod wait-ready --pod lab")]
pub(super) struct UpArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct UpJson<'a> {
    pod: &'a str,
    engine: EngineKind,
    state: &'static str,
    started: bool,
    recreated: bool,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(super) fn run(args: &UpArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    if pod.settings().engine != EngineKind::Local && printer.is_interactive() {
        printer.note("starting; the first time the image is pulled, which takes minutes");
    }
    let stale = host::before_up(&pod)?;
    let started = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { engine::up(&pod, &EngineSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if let Some(stale) = &stale {
        stale.said(&pod);
    }
    // a guest that boots cannot be ready yet; `wait-ready` sees to its clock
    if matches!(started, Started::AlreadyRunning | Started::Resumed) {
        time_sync::along(&pod, printer)?;
    }
    let lacking =
        (started == Started::Now).then(|| host::setup::agent_fault(&pod)).flatten().filter(|_| host::is_new_disk(&pod));
    let lacking = lacking.map(|fault| {
        format!("{fault}; this Windows will have no agent and never become ready: `podlink setup --pod {}` tells how to stage one", pod.name())
    });
    let note = stale.map(|stale| stale.note).or(lacking);
    if printer.is_json() {
        printer.json(&UpJson {
            pod: pod.name().as_str(),
            engine: pod.settings().engine,
            state: "running",
            started: started != Started::AlreadyRunning,
            recreated: started == Started::Recreated,
            address: pod.address().to_string(),
            note,
        });
    } else {
        let how = match started {
            Started::Now => "is up",
            Started::AlreadyRunning => "runs already",
            Started::Resumed => "was paused and runs again",
            Started::Recreated => "is up, made anew from its changed settings",
        };
        printer.line(&format!("pod {} {how}, its agent is to answer on {}", pod.name(), pod.address()));
        if let Some(note) = note {
            printer.note(&format!("note: {note}"));
        }
    }
    Ok(Exit::SUCCESS)
}
