//! `podlink pod list`.

use super::{Exit, Failure, Outcome, Printer, block_on, signal::Interrupts};
use crate::{
    cmd::output::printable,
    host::{self, ClientSettings, Home},
};

/// List all pods, each with how it is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod list
  podlink pod list --json | jq -r '.pods[] | select(.ready) | .name'")]
pub(super) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(_args: &ListArgs, printer: Printer) -> Outcome {
    let home = Home::from_env()?;
    let pods = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { host::list(&home, &ClientSettings::DEFAULT).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "pods": pods }));
        return Ok(Exit::SUCCESS);
    }
    if pods.is_empty() {
        printer.note(&format!("no pods in {}; make one with `podlink setup`", home.config().display()));
        return Ok(Exit::SUCCESS);
    }
    let width = pods.iter().map(|pod| pod.name.len()).max().unwrap_or_default().max(4);
    printer.line(&format!("{:width$}  engine  state     ready  port", "name"));
    for pod in &pods {
        let engine = pod.engine.map_or("-", host::EngineKind::as_str);
        let port = pod.port.map_or_else(|| "-".to_owned(), |port| port.to_string());
        let ready = if pod.ready { "yes" } else { "no" };
        let error = pod.error.as_ref().map(|error| format!("  {}", printable(error))).unwrap_or_default();
        printer.line(&format!("{:width$}  {engine:6}  {:8}  {ready:5}  {port}{error}", pod.name, pod.state.as_str()));
    }
    Ok(Exit::SUCCESS)
}
