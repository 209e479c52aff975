//! `podlink agent status`.

use anyhow::Context as _;
use clap::Args;

use super::{
    super::{Exit, Outcome, Printer},
    places::StateArgs,
};
use crate::{
    guest::install::{self, AgentSeen, Status},
    protocol::StepState,
};

/// Show how the agent's installation stands
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 0 when the installation is complete and its agent answers, else with 1.

Examples:
  podlink agent status
  podlink agent status --json")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    state: StateArgs,

    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &StatusArgs) -> Outcome {
    let state = args.state.folder()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a thread")?;
    let status = runtime.block_on(install::status(&state))?;
    let printer = Printer::new(args.json);
    if printer.is_json() {
        printer.json(&status);
    } else {
        show(printer, &status);
    }
    let is_complete = status.install.as_ref().is_some_and(|install| install.complete);
    let answers = matches!(status.agent, AgentSeen::Running { .. });
    Ok(if is_complete && answers { Exit::SUCCESS } else { Exit::BROKEN })
}

fn show(printer: Printer, status: &Status) {
    let Some(install) = &status.install else {
        printer.line(&format!("nothing is installed: there is no record in {}", status.state_dir));
        return;
    };
    let how = match (install.complete, status.installing) {
        (true, false) => "complete",
        (_, true) => "under way",
        (false, false) => "not complete",
    };
    printer.line(&format!("installation  {how}, version {}", install.version));
    for step in &install.steps {
        let word = match step.state {
            StepState::Pending => "pending",
            StepState::Running => "running",
            StepState::Done => "done",
            StepState::Unavailable => "unavailable",
            _ => "failed",
        };
        let reason = step.reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
        printer.line(&format!("  {:<11} {}{reason}", word, step.name));
    }
    let agent = match &status.agent {
        AgentSeen::Running { pid, version, .. } => {
            format!("answers on {}, pid {pid}, version {version}", status.listen.join(" "))
        }
        AgentSeen::Other { agent_id, version } => {
            format!("another one ({agent_id}, version {version}) answers on {}", status.listen.join(" "))
        }
        AgentSeen::Silent => "does not answer".to_owned(),
        AgentSeen::Foreign => format!("another program holds {}", status.listen.join(" ")),
        _ => "does not run".to_owned(),
    };
    printer.line(&format!("agent         {agent}"));
    printer.line(&format!("autostart     {}", status.autostart.as_deref().unwrap_or("none")));
    for (name, text) in [("", &status.note), ("program       ", &status.exe)] {
        if let Some(text) = text {
            printer.line(&format!("{name:<14}{text}"));
        }
    }
    printer.line(&format!("state, logs   {}", status.state_dir));
}
