//! `podlink pod status`.

use std::time::Duration;

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, seconds, signal::Interrupts};
use crate::{
    cmd::output::printable,
    host::{self, Change, ClientSettings, Pod, PodState, PodStatus, TokenStatus, WatchSettings},
};

/// Show how a pod is: engine, container, port, agent, token
///
/// The state in one word is created, starting, ready, failed, paused, stopping, stopped, gone (no container), or
/// unknown (the engine cannot be asked).
///
/// Exits 0 whenever it could tell, ready or not: `ready` in `--json`, or `podlink pod wait-ready`, is for scripts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod status
  podlink pod status --pod build --json
  podlink pod status --watch                  a line for each change of the state
  podlink pod status --watch --until ready --timeout 600")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Go on and tell each change of the state, one line each
    #[arg(long)]
    watch: bool,
    /// With --watch: end with success once the pod is in this state
    #[arg(long, value_name = "STATE", requires = "watch")]
    until: Option<PodState>,
    /// With --watch: end with exit code 10 after this many seconds
    #[arg(long, value_name = "SECS", requires = "watch", value_parser = seconds)]
    timeout: Option<f64>,
    /// Print one JSON object; with --watch one a line
    #[arg(long)]
    pub(super) json: bool,
}

/// One change, as `--watch --json` prints it.
#[derive(Debug, Serialize)]
struct ChangeJson<'a> {
    previous: Option<PodState>,
    elapsed_ms: u128,
    #[serde(flatten)]
    status: &'a PodStatus,
}

pub(super) fn run(args: &StatusArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    if args.watch {
        return watch(args, &pod, printer);
    }
    let status = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { host::status(&pod, ClientSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&status);
    } else {
        print(&status, printer);
    }
    Ok(Exit::SUCCESS)
}

fn watch(args: &StatusArgs, pod: &Pod, printer: Printer) -> Outcome {
    let settings = WatchSettings { timeout: args.timeout.map(Duration::from_secs_f64), ..WatchSettings::DEFAULT };
    let tell = |change: &Change| {
        if printer.is_json() {
            let elapsed_ms = change.elapsed.as_millis();
            printer.json(&ChangeJson { previous: change.previous, elapsed_ms, status: &change.status });
        } else {
            let (state, says) = (change.status.state.as_str(), printable(&change.status.agent.says));
            printer.line(&format!("{:8.1} s  {state:8}  {says}", change.elapsed.as_secs_f64()));
        }
    };
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let look = || host::status(pod, ClientSettings::DEFAULT);
        let watching = async { host::watch(look, &settings, args.until, tell).await.map_err(Failure::from) };
        interrupts.or(watching).await
    })?;
    Ok(Exit::SUCCESS)
}

fn print(status: &PodStatus, printer: Printer) {
    let token = match status.token {
        TokenStatus::Ok => "ok",
        TokenStatus::Mismatch => "mismatch",
        TokenStatus::Unknown => "unknown",
    };
    printer.line(&format!("pod        {}", status.pod));
    printer.line(&format!("state      {}", status.state));
    printer.line(&format!("engine     {}", status.engine));
    match &status.engine_error {
        Some(error) => printer.line(&format!("container  {} ({})", status.container, printable(error))),
        None => printer.line(&format!("container  {}", status.container)),
    }
    printer.line(&format!("address    {}", status.address));
    printer.line(&format!("agent      {}", printable(&status.agent.says)));
    if let Some(health) = &status.agent.health {
        printer.line(&format!("version    {}", printable(&health.version)));
    }
    if let Some(limits) = status.agent.limits {
        printer.line(&format!("limits     {limits}"));
    }
    printer.line(&format!("token      {token}"));
    printer.line(&format!("ready      {}", if status.ready { "yes" } else { "no" }));
    if let Some(hint) = &status.hint {
        printer.line(&format!("hint       {hint}"));
    }
}
