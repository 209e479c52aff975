//! A pod's events: the agent's, and what only the host can see of container, VM and connection.

use std::{pin::Pin, time::Duration};

use futures_util::stream::{Stream, StreamExt as _, unfold};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    AgentClient, ClientSettings, Error, ErrorKind, EventItem, EventStream, EventsRequest, Pod, PodState, Result, status,
};
use crate::protocol::{EventName, event_matches};

/// Between two looks at the pod: they ask the engine, which takes a process each time.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The pod's state has changed, or is told for the first time.
pub const POD_STATE: &str = "pod.state";
/// The agent tells its events.
pub const POD_CONNECTED: &str = "pod.connected";
/// The agent is not reached; it is tried on.
pub const POD_DISCONNECTED: &str = "pod.disconnected";

/// The events of this side.
const HOST_EVENTS: [&str; 3] = [POD_STATE, POD_CONNECTED, POD_DISCONNECTED];

/// Who tells an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    /// The agent in the guest.
    Agent,
    /// This side.
    Host,
}

/// One event of a pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PodEvent {
    /// When, RFC 3339, by the clock of whoever tells it.
    pub ts: String,
    /// Who tells it.
    pub source: EventSource,
    /// What to resume with after it; only the agent's events have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: Value,
}

type Events = Pin<Box<dyn Stream<Item = Result<PodEvent>> + Send>>;

/// The events of a pod, in the order in which they come.
#[expect(missing_debug_implementations, reason = "it is made of futures")]
pub struct PodEvents {
    agent: Events,
    states: Events,
}

impl PodEvents {
    /// Those that the request asks for; the host's own have names like `pod.state`.
    ///
    /// # Errors
    /// When the pod's token cannot be read, or a pattern fits no event of this side.
    pub fn of(pod: &Pod, mut request: EventsRequest) -> Result<Self> {
        let client = AgentClient::for_pod(pod, ClientSettings::DEFAULT)?;
        let types = std::mem::take(&mut request.types);
        let wants = |name: &str| types.is_empty() || types.iter().any(|pattern| event_matches(pattern, name));
        let of_host = |pattern: &String| pattern.starts_with("pod.");
        for pattern in types.iter().filter(|pattern| of_host(pattern)) {
            if !HOST_EVENTS.iter().any(|name| event_matches(pattern, name)) {
                return Err(Error::new(ErrorKind::Settings, format!("{pattern:?} is no event of a pod"))
                    .with_hint(format!("the host's own events are {}", HOST_EVENTS.join(", "))));
            }
        }
        request.types = types.iter().filter(|pattern| !of_host(pattern)).cloned().collect();
        let from_agent = types.is_empty() || !request.types.is_empty();
        if let (true, Some(limits)) = (from_agent, pod.settings().agent.limits()) {
            return Err(Error::new(ErrorKind::Unsupported, limits)
                .with_hint(format!("this side's own event is there: `podlink pod events --types {POD_STATE}`")));
        }
        let (state, connected, disconnected) = (wants(POD_STATE), wants(POD_CONNECTED), wants(POD_DISCONNECTED));
        let agent: Events = if from_agent || connected || disconnected {
            if !from_agent {
                // whether it is reached is all that is asked
                request.types = vec![EventName::Gap.as_str().to_owned()];
            }
            let events = unfold(client.events(request), async |mut events| Some((told(&mut events).await, events)));
            let wanted = move |event: &Result<PodEvent>| {
                let keep = event.as_ref().map_or(true, |event| match &*event.name {
                    POD_CONNECTED => connected,
                    POD_DISCONNECTED => disconnected,
                    _ => from_agent,
                });
                std::future::ready(keep)
            };
            Box::pin(events.filter(wanted))
        } else {
            Box::pin(futures_util::stream::pending())
        };
        let states: Events = if state {
            let looking = Looking { pod: pod.clone(), previous: None };
            Box::pin(unfold(looking, async |mut looking| Some((looking.changed().await, looking))))
        } else {
            Box::pin(futures_util::stream::pending())
        };
        Ok(Self { agent, states })
    }

    /// Waits for the next one; dropping the wait loses nothing.
    ///
    /// # Errors
    /// Where the agent's events cannot be had and waiting will not help, or the pod's own files cannot be read.
    pub async fn next(&mut self) -> Result<PodEvent> {
        loop {
            let next = tokio::select! {
                next = self.agent.next() => next,
                next = self.states.next() => next,
            };
            if let Some(event) = next {
                return event;
            }
        }
    }
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

async fn told(events: &mut EventStream) -> Result<PodEvent> {
    let host = |name: &str, data| PodEvent { ts: now(), source: EventSource::Host, id: None, name: name.into(), data };
    Ok(match events.next().await? {
        EventItem::Event(event) => PodEvent {
            ts: event.data["ts"].as_str().unwrap_or_default().to_owned(),
            source: EventSource::Agent,
            id: Some(event.id),
            name: event.name,
            data: event.data,
        },
        EventItem::Connected => host(POD_CONNECTED, json!({})),
        EventItem::Disconnected(error) => host(
            POD_DISCONNECTED,
            json!({"why": error.to_string(), "hint": error.hint(), "error": error.kind().as_str()}),
        ),
    })
}

struct Looking {
    pod: Pod,
    previous: Option<PodState>,
}

impl Looking {
    /// Looks until the state is another than before.
    async fn changed(&mut self) -> Result<PodEvent> {
        loop {
            if self.previous.is_some() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            let status = status(&self.pod, ClientSettings::DEFAULT).await?;
            let previous = self.previous.replace(status.state);
            if previous != Some(status.state) {
                let data = json!({
                    "pod": status.pod, "state": status.state, "previous": previous, "container": status.container,
                    "agent": status.agent.says,
                });
                let (source, name) = (EventSource::Host, POD_STATE.to_owned());
                return Ok(PodEvent { ts: now(), source, id: None, name, data });
            }
        }
    }
}
