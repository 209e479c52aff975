//! Pods in containers: what is done with them, through compose and through the engine itself.

use std::{ffi::OsString, time::Duration};

use super::{
    ContainerState, EngineSettings, Started, Stopped, applied,
    front_end::{engine_program, front_end},
    listing::{self, Container},
    run::{Finished, Invocation, search_path},
};
use crate::{
    compose::{Origin, merged_legs},
    host::{
        Error, ErrorKind, GuestOs, Pod, Result,
        ports::{Transport, require_free},
    },
};

/// Brings the pod's container up, as its files say now.
pub(super) async fn up(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    let found = listing::containers(pod, settings).await?;
    let digest = applied::digest(pod)?;
    let changed = found.iter().any(|container| container.config.as_ref().is_some_and(|config| *config != digest));
    match found.first().map(|container| container.state) {
        Some(ContainerState::Running) if !changed => return Ok(Started::AlreadyRunning),
        Some(ContainerState::Paused) if !changed => {
            resume(pod, settings).await?;
            return Ok(Started::Resumed);
        }
        _ => {}
    }
    // before anything is taken down
    require_ports(pod, &found)?;
    if changed {
        require_startable(pod, settings).await?;
        take_down(pod, settings).await?;
    }
    applied::write_label(pod, &digest)?;
    let said = compose(pod, &["up", "-d"], settings, settings.up).await?;
    match state(pod, settings).await? {
        ContainerState::Running if changed => Ok(Started::Recreated),
        ContainerState::Running => Ok(Started::Now),
        // podman-compose 1.0 ends with 0 whatever became of it
        ContainerState::Absent => {
            let detail = format!("compose made no container of the pod {}{}", pod.name(), said.last_lines());
            let error = Error::new(ErrorKind::NoContainer, detail)
                .with_hint(format!("mend what it names, and run `podlink pod up --pod {}` again", pod.name()));
            Err(without_password(pod, error))
        }
        other => {
            let detail = format!("the container was made and is {other}{}", said.last_lines());
            let error = Error::new(ErrorKind::Engine, detail)
                .with_hint(format!("see why with `podlink pod logs --pod {}`", pod.name()));
            Err(without_password(pod, error))
        }
    }
}

/// Takes the pod's container down, and all else of its compose project.
pub(super) async fn down(pod: &Pod, settings: &EngineSettings) -> Result<Stopped> {
    let found = listing::whole_project(pod, settings).await?;
    if found.is_empty() {
        remove_networks(pod, settings).await?;
        return Ok(Stopped::WasNotRunning);
    }
    take_down(pod, settings).await?;
    Ok(Stopped::Now)
}

/// Stops the guest in its time and starts it again, made anew where its files have changed.
pub(super) async fn restart(pod: &Pod, settings: &EngineSettings) -> Result<Started> {
    let found = listing::containers(pod, settings).await?;
    // a guest that could not come back is not stopped
    require_ports(pod, &found)?;
    require_startable(pod, settings).await?;
    stop(pod, &found, settings).await?;
    match up(pod, settings).await? {
        Started::Recreated => Ok(Started::Recreated),
        _ => Ok(Started::Now),
    }
}

/// Freezes the container.
pub(super) async fn pause(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    let found = listing::containers(pod, settings).await?;
    let state = found.first().map_or(ContainerState::Absent, |container| container.state);
    match state {
        ContainerState::Paused => Ok(()),
        ContainerState::Running => on_each(pod, "pause", &found, ContainerState::Running, settings).await,
        other => Err(not_running(pod, other, "paused")),
    }
}

/// Thaws it.
pub(super) async fn resume(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    let found = listing::containers(pod, settings).await?;
    let state = found.first().map_or(ContainerState::Absent, |container| container.state);
    if found.iter().any(|container| container.state == ContainerState::Paused) {
        return on_each(pod, "unpause", &found, ContainerState::Paused, settings).await;
    }
    match state {
        ContainerState::Running => Ok(()),
        other => Err(not_running(pod, other, "resumed")),
    }
}

/// What state the pod's container is in; of several the one that is most alive.
pub(super) async fn state(pod: &Pod, settings: &EngineSettings) -> Result<ContainerState> {
    let found = listing::containers(pod, settings).await?;
    Ok(found.first().map_or(ContainerState::Absent, |container| container.state))
}

/// The call that prints the container's log.
pub(super) async fn logs(
    pod: &Pod,
    follow: bool,
    tail: Option<u32>,
    times: bool,
    settings: &EngineSettings,
) -> Result<Invocation> {
    let found = listing::containers(pod, settings).await?;
    let Some(container) = found.first() else {
        return Err(Error::new(ErrorKind::NoContainer, format!("the pod {} has no container, so no log", pod.name()))
            .with_hint(format!("start it with `podlink pod up --pod {}`", pod.name())));
    };
    let mut args: Vec<OsString> = vec!["logs".into()];
    if follow {
        args.push("-f".into());
    }
    if times {
        args.push("--timestamps".into());
    }
    if let Some(tail) = tail {
        args.extend(["--tail".into(), tail.to_string().into()]);
    }
    args.push(container.id.clone().into());
    Ok(Invocation::new(&engine_program(pod.settings().engine)?, args, settings.quick))
}

fn not_running(pod: &Pod, state: ContainerState, wanted: &str) -> Error {
    let (kind, what) = match state {
        ContainerState::Absent => (ErrorKind::NoContainer, "has no container".to_owned()),
        other => (ErrorKind::Engine, format!("has a container that is {other}")),
    };
    Error::new(kind, format!("the pod {} {what}: it cannot be {wanted}", pod.name()))
        .with_hint(format!("start it with `podlink pod up --pod {}`", pod.name()))
}

/// Fails where one of the pod's ports is held by anything but the pod itself.
fn require_ports(pod: &Pod, found: &[Container]) -> Result<()> {
    let ports = &pod.settings().ports;
    let mut wanted = vec![
        ("agent", ports.agent, Transport::Tcp, "--agent-port"),
        ("web viewer", ports.web, Transport::Tcp, "--web-port"),
    ];
    if pod.settings().guest == GuestOs::Windows {
        wanted.push(("remote desktop", ports.rdp, Transport::TcpAndUdp, "--rdp-port"));
    }
    for (label, port, transport, flag) in wanted {
        if found.iter().any(|container| container.ports.contains(&port)) {
            continue;
        }
        require_free(label, port, transport).map_err(|error| {
            let setup = format!("`podlink setup --pod {} {flag} …`", pod.name());
            error.with_hint(format!("end that program, or choose another port with {setup}"))
        })?;
    }
    Ok(())
}

/// Fails where the pod's files do not read or their image cannot be had, so that what runs is not taken down for them.
async fn require_startable(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    front_end(pod.settings().engine, settings).await?;
    let read = |name: &str| match fs_err::read_to_string(pod.dir().join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::File, "a file of the pod cannot be read").with_source(error)),
    };
    let compose = read(Pod::COMPOSE_FILE)?.unwrap_or_default();
    let overriding = read(Pod::OVERRIDE_FILE)?;
    let merged = merged_legs(&compose, overriding.as_deref(), pod.settings().ports.agent).map_err(|unreadable| {
        let (file, hint) = match unreadable.0 {
            Origin::Compose => (Pod::COMPOSE_FILE, format!("`podlink setup --pod {}` writes it anew", pod.name())),
            Origin::Override => (Pod::OVERRIDE_FILE, "mend it, it is yours".to_owned()),
        };
        let detail = format!("{} is no compose file; the pod is left as it is", pod.dir().join(file).display());
        Error::new(ErrorKind::Settings, detail).with_hint(hint)
    })?;
    // what holds a variable is compose's to resolve
    let Some(image) = merged.image.filter(|image| !image.contains('$')) else { return Ok(()) };
    if engine(pod, ["image", "inspect", &image], settings.quick).await.is_ok() {
        return Ok(());
    }
    engine(pod, ["pull", &image], settings.up).await.map_err(|error| {
        let detail = format!("the image {image} cannot be had; the pod is left as it is");
        Error::new(ErrorKind::Engine, detail)
            .with_source(error)
            .with_hint(format!("choose another with `podlink setup --pod {} --image IMAGE`", pod.name()))
    })
}

/// Gives the guest its time to shut down: not every front end heeds `stop_grace_period`.
async fn stop(pod: &Pod, found: &[Container], settings: &EngineSettings) -> Result<()> {
    if found.iter().any(|container| container.state == ContainerState::Paused) {
        // what is frozen hears no signal
        on_each(pod, "unpause", found, ContainerState::Paused, settings).await?;
    }
    let alive = |state| !matches!(state, ContainerState::Exited { .. } | ContainerState::Created);
    let ids: Vec<&str> =
        found.iter().filter(|container| alive(container.state)).map(|container| container.id.as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let grace = settings.stop_grace.as_secs().to_string();
    let args = ["stop", "-t", &grace].into_iter().chain(ids);
    engine(pod, args, settings.stop_grace + settings.stop_margin).await
}

/// Stops, takes down, and sweeps up what the front end leaves.
async fn take_down(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    let found = listing::containers(pod, settings).await?;
    stop(pod, &found, settings).await?;
    // where the file is gone, the labels still tell what is the project's
    let composed = if pod.dir().join(Pod::COMPOSE_FILE).exists() {
        compose(pod, &["down"], settings, settings.down).await.map(drop)
    } else {
        Ok(())
    };
    let left = listing::whole_project(pod, settings).await?;
    if !left.is_empty() {
        let ids = left.iter().map(|container| container.id.as_str());
        // the guest itself is stopped; what only an override describes has no say in its time
        engine(pod, ["rm", "-f"].into_iter().chain(ids), settings.down).await?;
    }
    remove_networks(pod, settings).await?;
    // with nothing left, how compose ended is of no importance
    let left = listing::whole_project(pod, settings).await?;
    if left.is_empty() { Ok(()) } else { composed.and(Err(still_there(pod, &left))) }
}

fn still_there(pod: &Pod, left: &[Container]) -> Error {
    let states: Vec<String> = left.iter().map(|container| container.state.to_string()).collect();
    let detail = format!("the pod {} was taken down, and its container is {}", pod.name(), states.join(", "));
    Error::new(ErrorKind::Engine, detail).with_hint(format!("see what `{} ps -a` shows", pod.settings().engine))
}

/// Old podman-compose leaves the project's network behind; a network that somebody else has joined stays.
async fn remove_networks(pod: &Pod, settings: &EngineSettings) -> Result<()> {
    for name in listing::networks(pod, settings).await? {
        engine(pod, ["network", "rm", &name], settings.quick).await?;
    }
    Ok(())
}

/// One word of the engine on all containers in a state.
async fn on_each(
    pod: &Pod,
    word: &str,
    found: &[Container],
    state: ContainerState,
    settings: &EngineSettings,
) -> Result<()> {
    let ids = found.iter().filter(|container| container.state == state).map(|container| container.id.as_str());
    engine(pod, [word].into_iter().chain(ids), settings.quick).await
}

async fn engine<'a>(pod: &Pod, args: impl IntoIterator<Item = &'a str>, deadline: Duration) -> Result<()> {
    let program = engine_program(pod.settings().engine)?;
    Invocation::new(&program, args, deadline).run_to_success().await.map(drop)
}

async fn compose(pod: &Pod, words: &[&str], settings: &EngineSettings, deadline: Duration) -> Result<Finished> {
    let front_end = front_end(pod.settings().engine, settings).await?;
    let mut args: Vec<OsString> = front_end.first.iter().map(Into::into).collect();
    args.extend(["-p".into(), pod.project().into(), "-f".into(), Pod::COMPOSE_FILE.into()]);
    if pod.dir().join(Pod::OVERRIDE_FILE).exists() {
        args.extend(["-f".into(), Pod::OVERRIDE_FILE.into()]);
    }
    if words.first() == Some(&"up") {
        args.extend(["-f".into(), applied::LABEL_FILE.into()]);
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
