//! `podlink pod down`.

use serde::Serialize;

use super::super::{Exit, Outcome, output::Printer, runtime::block_on};
use crate::host::{
    EngineKind, Home, Pod, PodName,
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
    /// The pod's name
    #[arg(long, env = "PODLINK_POD", default_value = PodName::DEFAULT, value_name = "NAME")]
    pod: PodName,
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

pub(super) fn run(args: DownArgs) -> Outcome {
    let printer = Printer::new(args.json);
    let pod = Pod::load(&Home::from_env()?, &args.pod)?;
    let stopped = block_on(async { Ok(engine::down(&pod, &EngineSettings::DEFAULT).await?) })?;
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
