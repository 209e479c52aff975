//! Pods in containers: up and down through compose, and what state the container is in.

use serde::Deserialize;

use super::{
    ContainerState, EngineSettings, Started, Stopped,
    front_end::{engine_program, front_end},
    run::{Finished, Invocation, search_path},
};
use crate::{
    compose::PROJECT_LABEL,
    host::{
        EngineKind, Error, ErrorKind, GuestOs, Pod, Result,
        ports::{Transport, require_free},
    },
};

/// Brings the pod's container up.
pub(super) async fn up(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    if state(pod, settings).await? == ContainerState::Running {
        return Ok(Started::AlreadyRunning);
    }
    let ports = &pod.settings().ports;
    require_free("agent", ports.agent, Transport::Tcp)?;
    require_free("web viewer", ports.web, Transport::Tcp)?;
    if pod.settings().guest == GuestOs::Windows {
        require_free("remote desktop", ports.rdp, Transport::TcpAndUdp)?;
    }
    let said = compose(pod, &["up", "-d"], settings, settings.up).await?;
    match state(pod, settings).await? {
        ContainerState::Running => Ok(Started::Now),
        // podman-compose 1.0 ends with 0 whatever became of it
        ContainerState::Absent => {
            let detail = format!("compose made no container of the pod {}{}", pod.name(), said.last_lines());
            let error = Error::new(ErrorKind::NoContainer, detail)
                .with_hint(format!("mend what it names, and run `podlink pod up --pod {}` again", pod.name()));
            Err(without_password(pod, error))
        }
        other => Err(Error::new(ErrorKind::Engine, format!("the container was made and is {other}"))
            .with_hint(format!("see why with `{} logs`", pod.settings().engine))),
    }
}

/// Takes the pod's container down.
pub(super) async fn down(pod: &Pod, settings: &EngineSettings) -> Result<Stopped> {
    if state(pod, settings).await? == ContainerState::Absent {
        return Ok(Stopped::WasNotRunning);
    }
    compose(pod, &["down"], settings, settings.down).await?;
    match state(pod, settings).await? {
        ContainerState::Absent | ContainerState::Created | ContainerState::Exited { .. } => Ok(Stopped::Now),
        other => {
            Err(Error::new(ErrorKind::Engine, format!("compose said that it went well, and the container is {other}")))
        }
    }
}

/// What state the pod's container is in, asked by the project's label.
pub(super) async fn state(pod: &Pod, settings: &EngineSettings) -> Result<ContainerState> {
    let kind = pod.settings().engine;
    let program = engine_program(kind)?;
    // docker before 23 does not know the word `json` there; podman's lines have no codes
    let format = if kind == EngineKind::Docker { "{{json .}}" } else { "json" };
    let filter = format!("label={PROJECT_LABEL}={}", pod.project());
    let finished = Invocation::new(&program, ["ps", "-a", "--filter", &filter, "--format", format], settings.quick)
        .run_to_success()
        .await?;
    parse_state(&finished.stdout).ok_or_else(|| {
        let detail = format!("what `{kind} ps` printed makes no sense{}", finished.last_lines());
        Error::new(ErrorKind::Engine, detail)
    })
}

async fn compose(
    pod: &Pod,
    words: &[&str],
    settings: &EngineSettings,
    deadline: std::time::Duration,
) -> Result<Finished> {
    let front_end = front_end(pod.settings().engine, settings).await?;
    let mut args: Vec<std::ffi::OsString> = front_end.first.iter().map(Into::into).collect();
    args.extend(["-p".into(), pod.project().into(), "-f".into(), Pod::COMPOSE_FILE.into()]);
    if pod.dir().join(Pod::OVERRIDE_FILE).exists() {
        args.extend(["-f".into(), Pod::OVERRIDE_FILE.into()]);
    }
    args.extend(words.iter().map(Into::into));
    let mut invocation = Invocation::new(&front_end.program, args, deadline);
    invocation.cwd = Some(pod.dir().to_owned());
    // a front end calls its engine by name
    if let Ok(path) = std::env::join_paths(search_path()) {
        invocation.env.push(("PATH".into(), path));
    }
    invocation.run_to_success().await.map_err(|error| without_password(pod, error))
}

/// podman-compose shows the whole command line that it runs, the password in it.
fn without_password(pod: &Pod, error: Error) -> Error {
    let Some(machine) = &pod.settings().machine else { return error };
    let password = machine.password.expose();
    let text = error.to_string();
    if password.is_empty() || !text.contains(password) {
        return error;
    }
    let hidden = Error::new(error.kind(), text.replace(password, "<hidden>"));
    match error.hint() {
        Some(hint) => hidden.with_hint(hint),
        None => hidden,
    }
}

/// A container in a list: podman's and docker's names for the same.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    state: String,
    #[serde(default)]
    exit_code: Option<i32>,
    /// Docker: `Exited (137) 3 minutes ago`.
    #[serde(default)]
    status: Option<String>,
}

/// The state in a list; of several containers (an override may add some) the one that is most alive.
fn parse_state(text: &str) -> Option<ContainerState> {
    let text = text.trim();
    let listed: Vec<Listed> = if text.starts_with('[') {
        serde_json::from_str(text).ok()?
    } else {
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().ok()?
    };
    let mut states: Vec<ContainerState> = listed.iter().map(Listed::state).collect();
    states.sort_by_key(|state| match state {
        ContainerState::Running => 0,
        ContainerState::Stopping => 1,
        ContainerState::Paused => 2,
        ContainerState::Created => 3,
        ContainerState::Exited { .. } => 4,
        ContainerState::Unknown | ContainerState::Absent => 5,
    });
    Some(states.first().copied().unwrap_or(ContainerState::Absent))
}

impl Listed {
    fn state(&self) -> ContainerState {
        match self.state.to_ascii_lowercase().as_str() {
            "running" | "restarting" => ContainerState::Running,
            "created" | "configured" | "initialized" => ContainerState::Created,
            "paused" => ContainerState::Paused,
            "stopping" | "removing" => ContainerState::Stopping,
            "exited" | "stopped" | "dead" => ContainerState::Exited { code: self.code() },
            _ => ContainerState::Unknown,
        }
    }

    fn code(&self) -> Option<i32> {
        let in_status = || self.status.as_ref()?.strip_prefix("Exited (")?.split(')').next()?.parse().ok();
        self.exit_code.or_else(in_status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_lists_are_read() {
        let cases = [
            ("", Some(ContainerState::Absent)),
            ("[]", Some(ContainerState::Absent)),
            (r#"[{"State":"running","ExitCode":0,"Status":"Up 3 seconds"}]"#, Some(ContainerState::Running)),
            (r#"[{"State":"exited","ExitCode":137}]"#, Some(ContainerState::Exited { code: Some(137) })),
            (r#"{"State":"exited","Status":"Exited (3) 2 days ago"}"#, Some(ContainerState::Exited { code: Some(3) })),
            ("{\"State\":\"exited\"}\n{\"State\":\"paused\"}\n", Some(ContainerState::Paused)),
            (r#"[{"State":"odd"}]"#, Some(ContainerState::Unknown)),
            ("no json", None),
        ];
        for (text, state) in cases {
            assert_eq!(parse_state(text), state, "{text}");
        }
    }
}
