//! `podlink pod status`.

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts};
use crate::{
    cmd::output::printable,
    host::{self, ClientSettings, TokenStatus},
};

/// Show how a pod is: engine, container, port, agent, token
///
/// Exits 0 whenever it could tell, ready or not: `ready` in `--json`, or `podlink pod wait-ready`, is for scripts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod status
  podlink pod status --pod build --json")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &StatusArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let status = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { host::status(&pod, ClientSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&status);
        return Ok(Exit::SUCCESS);
    }
    let engine = format!("{:?}", status.engine).to_lowercase();
    let token = match status.token {
        TokenStatus::Ok => "ok",
        TokenStatus::Mismatch => "mismatch",
        TokenStatus::Unknown => "unknown",
    };
    printer.line(&format!("pod        {}", status.pod));
    printer.line(&format!("engine     {engine}"));
    match &status.engine_error {
        Some(error) => printer.line(&format!("container  {} ({})", status.container, printable(error))),
        None => printer.line(&format!("container  {}", status.container)),
    }
    printer.line(&format!("address    {}", status.address));
    printer.line(&format!("agent      {}", printable(&status.agent.says)));
    if let Some(health) = &status.agent.health {
        printer.line(&format!("version    {}", printable(&health.version)));
    }
    printer.line(&format!("token      {token}"));
    printer.line(&format!("ready      {}", if status.ready { "yes" } else { "no" }));
    if let Some(hint) = &status.hint {
        printer.line(&format!("hint       {hint}"));
    }
    Ok(Exit::SUCCESS)
}
