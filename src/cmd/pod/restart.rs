//! `podlink pod restart`.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, seconds, signal::Interrupts};
use crate::host::{
    self, AgentClient, ClientSettings, EngineKind, Pod, RESTART_TIMEOUT, WaitSettings,
    engine::{self, ContainerState, EngineSettings, Started},
};

/// Stop a pod and start it again
///
/// The guest gets two minutes to shut down. Where the settings have changed the container is made anew, on the same
/// disk. A pod that does not run is started.
///
/// With --agent it is the guest's agent alone that restarts: calls that run get their answers, and the command ends once
/// another agent serves calls. Exit codes of that as of `podlink pod wait-ready`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod restart
  podlink pod restart --pod lab && podlink pod wait-ready --pod lab
  podlink pod restart --agent                     the agent alone: after its update, say")]
pub(super) struct RestartArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Restart the guest's agent and nothing else
    #[arg(long)]
    agent: bool,
    /// Seconds to wait for the new agent; 60 where nothing is said
    #[arg(long, value_name = "SECS", value_parser = seconds, requires = "agent")]
    timeout: Option<f64>,
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

#[derive(Debug, Serialize)]
struct AgentJson<'a> {
    pod: &'a str,
    /// The agent that has ended.
    before: &'a str,
    agent_id: &'a str,
    version: &'a str,
    elapsed_ms: u128,
}

pub(super) fn run(args: &RestartArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    if args.agent {
        return restart_agent(&pod, args.timeout.map_or(RESTART_TIMEOUT, Duration::from_secs_f64), printer);
    }
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

fn restart_agent(pod: &Pod, timeout: Duration, printer: Printer) -> Outcome {
    let client = AgentClient::for_pod(pod, ClientSettings::DEFAULT)?;
    let settings = WaitSettings { timeout, ..WaitSettings::DEFAULT };
    let begun = Instant::now();
    // the local engine knows of agents alone that it has started itself, and those cannot be restarted
    let container = async || match pod.settings().engine {
        EngineKind::Local => Ok(ContainerState::Running),
        EngineKind::Podman | EngineKind::Docker => engine::state(pod).await,
    };
    let (accepted, health) = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let restarting = host::restart_agent(&client, container, &settings, |_| {});
        Box::pin(interrupts.or(async { restarting.await.map_err(Failure::from) })).await
    })?;
    if printer.is_json() {
        printer.json(&AgentJson {
            pod: pod.name().as_str(),
            before: &accepted.agent_id,
            agent_id: &health.agent_id,
            version: &health.version,
            elapsed_ms: begun.elapsed().as_millis(),
        });
    } else {
        let seconds = begun.elapsed().as_secs_f64();
        printer.line(&format!(
            "the agent of pod {} is up again after {seconds:.1} s, version {}",
            pod.name(),
            health.version
        ));
    }
    Ok(Exit::SUCCESS)
}
