//! A pod's container in detail, as the engine tells it and as it looks from inside.
//!
//! Implementation note: what `inspect` prints holds the guest's password among the variables. It is read field by
//! field and shown by nothing.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use super::{ContainerState, EngineSettings, front_end::engine_program, run::Invocation};
use crate::{
    compose::{PROJECT_LABEL, guest_port},
    host::{EngineKind, Error, ErrorKind, Pod, Result, ports::has_listener},
};

/// A container as its engine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id, short enough to be typed.
    pub id: String,
    /// Its state.
    pub state: ContainerState,
    /// For how long it has been running; `None` where it does not, or the engine does not say.
    pub running_for: Option<Duration>,
    /// Where the host reaches the agent's port of the container: `127.0.0.1:8765`.
    pub published: Vec<String>,
    /// `USER_PORTS` as the container was made with.
    pub user_ports: Option<String>,
    /// `NETWORK` as it was made with.
    pub network: Option<String>,
}

/// How the image joins the guest to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkMode {
    /// A bridge and a tap; every port goes to the guest, `USER_PORTS` says nothing.
    Nat,
    /// passt.
    Passt,
    /// QEMU's own user-mode networking.
    Slirp,
}

impl NetworkMode {
    /// As it is spoken of.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nat => "NAT",
            Self::Passt => "passt",
            Self::Slirp => "slirp",
        }
    }
}

/// What a look into a running container shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// Whether a QEMU runs there.
    pub qemu: bool,
    /// Whether something listens on the agent's port there: the forward of user-mode networking.
    pub forward: bool,
    /// The network's mode; `None` before it is set up.
    pub mode: Option<NetworkMode>,
}

/// The pod's container; `None` where there is none.
///
/// # Errors
/// When the engine is missing, fails, or prints what makes no sense.
pub(in crate::host) async fn inspect(pod: &Pod, settings: &EngineSettings) -> Result<Option<Container>> {
    let kind = pod.settings().engine;
    let program = engine_program(kind)?;
    let filter = format!("label={PROJECT_LABEL}={}", pod.project());
    let listed = Invocation::new(&program, ["ps", "-a", "-q", "--no-trunc", "--filter", &filter], settings.quick)
        .run_to_success()
        .await?;
    let ids: Vec<&str> = listed.stdout.split_ascii_whitespace().collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let args = ["inspect", "--type", "container"].into_iter().chain(ids);
    let finished = Invocation::new(&program, args, settings.quick).run().await?;
    let nonsense = || Error::new(ErrorKind::Engine, format!("what `{kind} inspect` printed makes no sense"));
    if finished.code != Some(0) {
        let code = finished.code.map_or_else(|| "by a signal".to_owned(), |code| format!("with code {code}"));
        // of its output nothing is shown: the password is in it
        return Err(Error::new(ErrorKind::Engine, format!("`{kind} inspect` ended {code}")));
    }
    let now = jiff::Timestamp::now();
    parse(&finished.stdout, now).map(Some).ok_or_else(nonsense)
}

/// Looks into the running container of this id.
///
/// # Errors
/// When the engine cannot run a program in it.
pub(in crate::host) async fn look_inside(kind: EngineKind, id: &str, settings: &EngineSettings) -> Result<Inside> {
    const LOOK: &str = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; echo ---; cat /proc/net/dev; echo ---; \
                        cat /proc/[0-9]*/comm 2>/dev/null; true";
    let program = engine_program(kind)?;
    let said = Invocation::new(&program, ["exec", id, "sh", "-c", LOOK], settings.quick).run_to_success().await?;
    parse_inside(&said.stdout)
        .ok_or_else(|| Error::new(ErrorKind::Engine, format!("`{kind} exec` does not show the container from inside")))
}

fn parse_inside(text: &str) -> Option<Inside> {
    let mut parts = text.split("---\n");
    let (sockets, devices, programs) = (parts.next()?, parts.next()?, parts.next()?);
    let runs = |name: &str| programs.lines().any(|program| program.starts_with(name));
    let qemu = runs("qemu");
    let forward = has_listener(sockets, guest_port::AGENT);
    // the images' names for their tap, and what others call theirs
    let tap = devices.lines().filter_map(|line| line.split_once(':')).any(|(name, _)| {
        let name = name.trim();
        name == "qemu" || name.starts_with("tap")
    });
    let mode = match (tap, runs("passt"), qemu) {
        (true, ..) => Some(NetworkMode::Nat),
        (_, true, _) => Some(NetworkMode::Passt),
        (.., true) => Some(NetworkMode::Slirp),
        _ => None,
    };
    Some(Inside { qemu, forward, mode })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    state: InspectedState,
    #[serde(default)]
    config: InspectedConfig,
    #[serde(default)]
    network_settings: InspectedNetwork,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedState {
    status: String,
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    started_at: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct InspectedConfig {
    env: Option<Vec<String>>,
}

impl std::fmt::Debug for InspectedConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InspectedConfig(…)")
    }
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct InspectedNetwork {
    ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Binding {
    host_ip: String,
    host_port: String,
}

/// The most alive of the containers in `inspect`'s list.
fn parse(text: &str, now: jiff::Timestamp) -> Option<Container> {
    let inspected: Vec<Inspected> = serde_json::from_str(text).ok()?;
    let containers = inspected.into_iter().map(|inspected| inspected.container(now));
    containers.min_by_key(|container| container.state.liveness())
}

impl Inspected {
    fn container(self, now: jiff::Timestamp) -> Container {
        let state = match self.state.status.as_str() {
            // between two starts: that it ended is what matters here
            "restarting" => ContainerState::Exited { code: self.state.exit_code },
            word => ContainerState::named(word, self.state.exit_code),
        };
        let started: Option<jiff::Timestamp> = self.state.started_at.and_then(|at| at.parse().ok());
        let running = matches!(state, ContainerState::Running | ContainerState::Paused);
        let env = self.config.env.unwrap_or_default();
        let variable =
            |name: &str| env.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        let agent = format!("{}/tcp", guest_port::AGENT);
        let bindings = self.network_settings.ports.unwrap_or_default().remove(&agent).flatten().unwrap_or_default();
        Container {
            id: self.id.chars().take(12).collect(),
            state,
            running_for: started.filter(|_| running).and_then(|at| now.duration_since(at).try_into().ok()),
            published: bindings
                .iter()
                .map(|binding| {
                    let ip = if binding.host_ip.is_empty() { "0.0.0.0" } else { &binding.host_ip };
                    format!("{ip}:{}", binding.host_port)
                })
                .collect(),
            user_ports: variable("USER_PORTS"),
            network: variable("NETWORK").filter(|network| !network.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> jiff::Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_both_engines_print_is_read() {
        let podman = r#"[{"Id":"0123456789abcdef","State":{"Status":"running","ExitCode":0,
            "StartedAt":"2026-11-29T14:00:00.5+00:00"},"Config":{"Env":["PASSWORD=hunter2","USER_PORTS=8765","NETWORK="]},
            "NetworkSettings":{"Ports":{"8765/tcp":[{"HostIp":"127.0.0.1","HostPort":"18765"}],"3389/udp":null}}}]"#;
        let container = parse(podman, at("2026-11-29T14:00:30.5Z")).unwrap();
        assert_eq!(
            container,
            Container {
                id: "0123456789ab".into(),
                state: ContainerState::Running,
                running_for: Some(Duration::from_secs(30)),
                published: vec!["127.0.0.1:18765".into()],
                user_ports: Some("8765".into()),
                network: None,
            }
        );
        assert!(!format!("{container:?}").contains("hunter2"));
        let docker = r#"[{"Id":"a","State":{"Status":"exited","ExitCode":137,"StartedAt":"0001-01-01T00:00:00Z"},
            "Config":{"Env":null},"NetworkSettings":{"Ports":{}}},{"Id":"b","State":{"Status":"paused"}}]"#;
        let container = parse(docker, at("2026-11-29T14:00:00Z")).unwrap();
        assert_eq!((container.id.as_str(), container.state), ("b", ContainerState::Paused));
        let looping = r#"[{"Id":"a","State":{"Status":"restarting","ExitCode":1}}]"#;
        assert_eq!(parse(looping, at("2026-11-29T14:00:00Z")).unwrap().state, ContainerState::Exited { code: Some(1) });
        assert_eq!(parse("[]", at("2026-11-29T14:00:00Z")), None);
        assert_eq!(parse("no", at("2026-11-29T14:00:00Z")), None);
    }

    #[test]
    fn a_look_inside_tells_forward_program_and_mode() {
        let listens =
            "   0: 00000000:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 34567 1 0\n";
        let look = |sockets: &str, devices: &str, programs: &str| {
            parse_inside(&format!("sl\n{sockets}---\nInter-|\n  eth0: 1 2\n{devices}---\n{programs}")).unwrap()
        };
        let qemu = "entry.sh\nqemu-system-x86\n";
        assert_eq!(look(listens, "", qemu), Inside { qemu: true, forward: true, mode: Some(NetworkMode::Slirp) });
        assert_eq!(look("", "  qemu: 0 0\n", qemu).mode, Some(NetworkMode::Nat));
        assert_eq!(look("", "", "passt.avx2\nqemu-system-x86\n").mode, Some(NetworkMode::Passt));
        assert_eq!(look("", "", "sh\n"), Inside { qemu: false, forward: false, mode: None });
        assert_eq!(parse_inside("sh: not found"), None);
    }
}
