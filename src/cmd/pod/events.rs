//! `podlink pod events`.

use std::time::Duration;

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, event_line, seconds, signal::Interrupts, time_sync};
use crate::{
    host::{Error, ErrorKind, EventsRequest, POD_STATE, PodEvent, PodEvents},
    protocol::event_matches,
};

/// Show what happens in a pod, as it happens
///
/// The agent's events: agent.started, agent.ready, agent.stopping, install.step, exec.started, exec.exited, auth.failed,
/// token.rotated, log, and with --output exec.output. The host's own: pod.state, pod.connected, pod.disconnected.
///
/// An agent that goes away is waited for; what it told meanwhile is shown once it is back. What cannot be shown is
/// said: gap, lagged. While this runs the guest's clock is looked at every five minutes, and put right where it is off.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod events
  podlink pod events --types exec.*,pod.state --json
  podlink pod events --since 0                        also what the agent still holds
  podlink pod events --once agent.ready --timeout 60")]
pub(super) struct EventsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Names of events, with commas between them; exec.* stands for all that begin so
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "once")]
    types: Vec<String>,
    /// Begin behind the event with this id; 0 for all that is held
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    /// Show what programs write as well
    #[arg(long)]
    output: bool,
    /// Wait for one event of this name, print it and end with success; for pod.state, one that changes it
    #[arg(long, value_name = "NAME")]
    once: Option<String>,
    /// With --once: end with exit code 10 after this many seconds
    #[arg(long, value_name = "SECS", requires = "once", value_parser = seconds)]
    timeout: Option<f64>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &EventsArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let types = args.once.iter().chain(&args.types).filter(|name| !name.is_empty()).cloned().collect();
    let request = EventsRequest { types, since: args.since.clone(), output: args.output, ..EventsRequest::ALL };
    let mut events = PodEvents::of(&pod, request)?;
    let limit = args.timeout.map(Duration::from_secs_f64);
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let showing = async {
            loop {
                let event = events.next().await?;
                if args.once.as_ref().is_some_and(|once| !is_the_one(&event, once)) {
                    continue;
                }
                if printer.is_json() {
                    printer.json(&event);
                } else {
                    printer.line(&event_line::render(&event, printer.is_colored()));
                }
                if args.once.is_some() {
                    return Ok(Exit::SUCCESS);
                }
            }
        };
        let showing = async {
            if args.once.is_some() {
                return showing.await;
            }
            tokio::select! {
                shown = showing => shown,
                never = time_sync::keep(&pod, printer) => match never {},
            }
        };
        let limited =
            async {
                let Some(limit) = limit else { return showing.await };
                tokio::time::timeout(limit, showing).await.unwrap_or_else(|_| {
                    let name = args.once.as_deref().unwrap_or_default();
                    let detail = format!("no {name} within {} s", limit.as_secs_f64());
                    Err(Failure::from(Error::new(ErrorKind::WaitTimedOut, detail).with_hint(format!(
                        "see what there is with `podlink pod events --since 0{}`",
                        pod.name().flag()
                    ))))
                })
            };
        interrupts.or(Box::pin(limited)).await
    })
}

/// Not what is only told beside, and not the state that the pod has been in all the time.
fn is_the_one(event: &PodEvent, once: &str) -> bool {
    event_matches(once, &event.name) && !(event.name == POD_STATE && event.data["previous"].is_null())
}
