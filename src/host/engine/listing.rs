//! A pod's containers and networks as the engine lists them, found by label.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ContainerState, EngineSettings, applied::CONFIG_LABEL, front_end::engine_program, run::Invocation};
use crate::{
    compose::PROJECT_LABEL,
    host::{EngineKind, Error, ErrorKind, Pod, Result},
};

/// The labels by which compose front ends tell whose a container or a network is.
const FRONT_END_LABELS: [&str; 2] = ["com.docker.compose.project", "io.podman.compose.project"];

/// One container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) state: ContainerState,
    /// What it was made from; `None` where compose was called by hand.
    pub(super) config: Option<String>,
    /// The host's ports that it publishes; only a running one has any.
    pub(super) ports: Vec<u16>,
}

/// The containers that `setup`'s file describes, the most alive first; an override may have multiplied them.
pub(super) async fn containers(pod: &Pod, settings: &EngineSettings) -> Result<Vec<Container>> {
    by_label(pod, PROJECT_LABEL, settings).await
}

/// All containers of the compose project, those that only the user's override describes too.
pub(super) async fn whole_project(pod: &Pod, settings: &EngineSettings) -> Result<Vec<Container>> {
    let mut all = containers(pod, settings).await?;
    for label in FRONT_END_LABELS {
        let more = by_label(pod, label, settings).await?;
        all.extend(more);
    }
    all.sort_by(|one, other| one.id.cmp(&other.id));
    all.dedup_by(|one, other| one.id == other.id);
    Ok(all)
}

/// The project's networks; some front ends leave them behind.
pub(super) async fn networks(pod: &Pod, settings: &EngineSettings) -> Result<Vec<String>> {
    let program = engine_program(pod.settings().engine)?;
    let mut names = Vec::new();
    for label in FRONT_END_LABELS {
        let filter = format!("label={label}={}", pod.project());
        let listing = ["network", "ls", "--filter", &filter, "--format", "{{.Name}}"];
        let finished = Invocation::new(&program, listing, settings.quick).run_to_success().await?;
        names.extend(finished.stdout.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

async fn by_label(pod: &Pod, label: &str, settings: &EngineSettings) -> Result<Vec<Container>> {
    let kind = pod.settings().engine;
    let program = engine_program(kind)?;
    // docker before 23 does not know the word `json` there; podman's lines have no codes
    let format = if kind == EngineKind::Docker { "{{json .}}" } else { "json" };
    let filter = format!("label={label}={}", pod.project());
    let listing = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", format];
    let finished = Invocation::new(&program, listing, settings.quick).run_to_success().await?;
    parse(&finished.stdout).ok_or_else(|| {
        let detail = format!("what `{kind} ps` printed makes no sense{}", finished.last_lines());
        Error::new(ErrorKind::Engine, detail)
    })
}

/// A container in a list: podman's and docker's names for the same.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    #[serde(alias = "ID", default)]
    id: String,
    state: String,
    #[serde(default)]
    exit_code: Option<i32>,
    /// Docker: `Exited (137) 3 minutes ago`.
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    labels: Option<Labels>,
    #[serde(default)]
    ports: Option<PublishedPorts>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Labels {
    /// podman.
    Map(BTreeMap<String, String>),
    /// Docker: `a=b,c=d`, in which a value's own commas cannot be told apart.
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PublishedPorts {
    /// podman.
    List(Vec<PublishedPort>),
    /// Docker: `127.0.0.1:8765->8765/tcp, 127.0.0.1:8000-8001->8000-8001/tcp`.
    Text(String),
}

#[derive(Debug, Deserialize)]
struct PublishedPort {
    #[serde(default)]
    host_port: u16,
    #[serde(default)]
    range: u16,
}

/// The containers in a list, the most alive first.
fn parse(text: &str) -> Option<Vec<Container>> {
    let text = text.trim();
    let listed: Vec<Listed> = if text.starts_with('[') {
        serde_json::from_str(text).ok()?
    } else {
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().ok()?
    };
    let mut containers: Vec<Container> = listed
        .into_iter()
        .map(|one| Container { state: one.state(), config: one.config(), ports: one.ports(), id: one.id })
        .collect();
    containers.sort_by_key(|container| container.state.liveness());
    Some(containers)
}

impl Listed {
    fn state(&self) -> ContainerState {
        ContainerState::named(&self.state, self.code())
    }

    fn code(&self) -> Option<i32> {
        let in_status = || self.status.as_ref()?.strip_prefix("Exited (")?.split(')').next()?.parse().ok();
        self.exit_code.or_else(in_status)
    }

    fn config(&self) -> Option<String> {
        match self.labels.as_ref()? {
            Labels::Map(labels) => labels.get(CONFIG_LABEL).cloned(),
            Labels::Text(text) => {
                text.split(',').find_map(|label| label.strip_prefix(CONFIG_LABEL)?.strip_prefix('=')).map(str::to_owned)
            }
        }
    }

    fn ports(&self) -> Vec<u16> {
        match &self.ports {
            None => Vec::new(),
            Some(PublishedPorts::List(ports)) => ports
                .iter()
                .flat_map(|port| port.host_port..=port.host_port.saturating_add(port.range.saturating_sub(1)))
                .filter(|port| *port != 0)
                .collect(),
            Some(PublishedPorts::Text(text)) => text
                .split(',')
                .filter_map(|entry| entry.trim().split_once("->")?.0.rsplit_once(':'))
                .flat_map(|(_, ports)| {
                    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                    match (first.parse::<u16>(), last.parse::<u16>()) {
                        (Ok(first), Ok(last)) => first..=last,
                        #[expect(clippy::reversed_empty_ranges, reason = "what does not read is no port")]
                        _ => 1..=0,
                    }
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_lists_are_read() {
        let cases = [
            ("", None),
            ("[]", None),
            (r#"[{"State":"running","ExitCode":0,"Status":"Up 3 seconds"}]"#, Some(ContainerState::Running)),
            (r#"[{"State":"exited","ExitCode":137}]"#, Some(ContainerState::Exited { code: Some(137) })),
            (r#"{"State":"exited","Status":"Exited (3) 2 days ago"}"#, Some(ContainerState::Exited { code: Some(3) })),
            ("{\"State\":\"exited\"}\n{\"State\":\"paused\"}\n", Some(ContainerState::Paused)),
            (r#"[{"State":"odd"}]"#, Some(ContainerState::Unknown)),
        ];
        for (text, state) in cases {
            assert_eq!(parse(text).unwrap().first().map(|first| first.state), state, "{text}");
        }
        assert_eq!(parse("no json"), None);
    }

    #[test]
    fn labels_and_ports_are_read_in_both_forms() {
        let podman = r#"[{"Id":"abc","State":"running","Labels":{"io.podlink.config":"1f"},
            "Ports":[{"host_ip":"127.0.0.1","container_port":8765,"host_port":8765,"range":1,"protocol":"tcp"},
                     {"host_ip":"127.0.0.1","container_port":1,"host_port":9000,"range":2,"protocol":"udp"}]}]"#;
        let docker = r#"{"ID":"abc","State":"running","Labels":"a=b,io.podlink.config=1f,c=d",
            "Ports":"127.0.0.1:8765->8765/tcp, 127.0.0.1:9000-9001->1-2/udp, 80/tcp"}"#
            .replace('\n', " ");
        for text in [podman, &docker] {
            let all = parse(text).unwrap();
            assert_eq!(
                all,
                [Container {
                    id: "abc".into(),
                    state: ContainerState::Running,
                    config: Some("1f".into()),
                    ports: vec![8765, 9000, 9001],
                }],
                "{text}"
            );
        }
        let bare = parse(r#"[{"Id":"a","State":"created","Labels":null,"Ports":null}]"#).unwrap();
        assert_eq!((bare[0].config.as_deref(), bare[0].ports.len()), (None, 0));
    }
}
