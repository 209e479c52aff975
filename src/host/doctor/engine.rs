//! The checks of the engine: its program, its front end, the container, and what it publishes.

use super::{
    Asked, DoctorSettings, EngineEvidence, Evidence, Tool,
    check::{Advice, Check},
    words,
};
use crate::host::{
    EngineKind, Pod,
    engine::{self, Container, ContainerState, engine_version, front_end_version, inspect, look_inside},
};

/// Asks the engine.
pub(super) async fn gather(pod: &Pod, settings: &DoctorSettings) -> EngineEvidence {
    let kind = pod.settings().engine;
    if kind == EngineKind::Local {
        return EngineEvidence::Local(asked(engine::state(pod).await));
    }
    let engine = settings.of_engine();
    let program = engine_version(kind, &engine).await;
    if let Err(error) = &program {
        return EngineEvidence::Container {
            program: Asked::Failed(error.to_string()),
            front_end: Asked::Skipped,
            container: Asked::Skipped,
            inside: None,
        };
    }
    let (front_end, (container, inside)) = tokio::join!(front_end_version(kind, &engine), async {
        let container = inspect(pod, &engine).await;
        let running = container.as_ref().ok().and_then(Option::as_ref);
        let inside = match running.filter(|container| container.state == ContainerState::Running) {
            // evidence where it can be had: an image without a shell is no fault
            Some(container) => look_inside(kind, &container.id, &engine).await.ok(),
            None => None,
        };
        (container, inside)
    });
    let tool = |(name, version): (String, String)| Tool { name, version };
    EngineEvidence::Container {
        program: asked(program.map(|(path, version)| Tool { name: path.display().to_string(), version })),
        front_end: asked(front_end.map(tool)),
        container: asked(container),
        inside,
    }
}

fn asked<T>(result: crate::host::Result<T>) -> Asked<T> {
    match result {
        Ok(answer) => Asked::Answer(answer),
        Err(error) => Asked::Failed(format!("{:#}", anyhow::Error::from(error))),
    }
}

/// The lines `engine`, `compose`, `container` and `published`.
pub(super) fn checks(evidence: &Evidence) -> Vec<Check> {
    match &evidence.engine {
        EngineEvidence::Local(state) => local(evidence, state),
        EngineEvidence::Container { program, front_end, container, .. } => vec![
            engine_check(evidence, program),
            compose_check(evidence, front_end),
            container_check(evidence, container),
            published_check(evidence, container),
        ],
    }
}

fn local(evidence: &Evidence, state: &Asked<ContainerState>) -> Vec<Check> {
    let container = match state {
        Asked::Answer(ContainerState::Running) => Check::ok("container", "none; the agent's process runs"),
        Asked::Answer(_) => {
            let advice = Advice::new("the pod's agent does not run", words::command(evidence, "up"));
            Check::failed("container", "none; the agent's process does not run", advice)
        }
        Asked::Failed(why) => Check::failed("container", why, files_fault(evidence, why)),
        Asked::Skipped => Check::skipped("container", "not asked"),
    };
    vec![
        Check::ok("engine", "local: the agent is a process of this machine"),
        Check::skipped("compose", "the local engine has none"),
        container,
        Check::skipped("published", "the local engine publishes nothing"),
    ]
}

fn files_fault(evidence: &Evidence, why: &str) -> Advice {
    Advice::new(why, format!("look at {}", evidence.pod.dir.display()))
}

/// What to do about an engine that does not work.
pub(super) fn engine_advice(evidence: &Evidence, why: &str) -> Advice {
    let kind = evidence.pod.engine;
    Advice::new(
        why,
        format!("install or start {kind}, or choose another engine with {}", words::setup(evidence, " --engine …")),
    )
}

fn engine_check(evidence: &Evidence, program: &Asked<Tool>) -> Check {
    match program {
        Asked::Answer(tool) => {
            Check::ok("engine", format!("{} {} at {}", evidence.pod.engine, tool.version, tool.name))
        }
        Asked::Failed(why) => Check::failed("engine", why, engine_advice(evidence, why)),
        Asked::Skipped => Check::skipped("engine", "not asked"),
    }
}

fn compose_check(evidence: &Evidence, front_end: &Asked<Tool>) -> Check {
    let kind = evidence.pod.engine;
    match front_end {
        Asked::Answer(tool) => Check::ok("compose", format!("`{}` {}", tool.name, tool.version)),
        Asked::Failed(why) => {
            let advice = Advice::new(
                format!("{kind}'s compose front end does not work: {why}"),
                format!("install {kind}-compose"),
            );
            Check::failed("compose", why, advice)
        }
        Asked::Skipped => Check::skipped("compose", "because there is no engine"),
    }
}

fn container_check(evidence: &Evidence, container: &Asked<Option<Container>>) -> Check {
    match container {
        Asked::Answer(None) => {
            let advice = Advice::new("the pod has no container", words::command(evidence, "up"));
            Check::failed("container", "there is none", advice)
        }
        Asked::Answer(Some(container)) => {
            let since = container.running_for.map(|since| format!(" for {} s", since.as_secs())).unwrap_or_default();
            let network = container.network.as_deref().unwrap_or("not set");
            let mode =
                evidence.mode().map(|mode| format!(", the guest is joined by {}", mode.as_str())).unwrap_or_default();
            let seen = format!("{} is {}{since}, NETWORK {network}{mode}", container.id, container.state);
            match state_advice(evidence, container) {
                None => Check::ok("container", seen),
                Some(advice) => Check::failed("container", seen, advice),
            }
        }
        Asked::Failed(why) => Check::failed("container", why, engine_advice(evidence, why)),
        Asked::Skipped => Check::skipped("container", "because there is no engine"),
    }
}

/// What to do about a container that does not run.
pub(super) fn state_advice(evidence: &Evidence, container: &Container) -> Option<Advice> {
    let (kind, id) = (evidence.pod.engine, &container.id);
    let logs = format!("`{kind} logs {id}` says why, then {}", words::command(evidence, "up"));
    match container.state {
        ContainerState::Running => None,
        ContainerState::Paused => Some(Advice::new("the pod is paused", words::command(evidence, "resume"))),
        ContainerState::Stopping => {
            Some(Advice::new("the pod is going down", format!("once it is down, {}", words::command(evidence, "up"))))
        }
        ContainerState::Created => Some(Advice::new("the container is made and was never started", logs)),
        ContainerState::Exited { code: Some(code) } => {
            Some(Advice::new(format!("the container has ended with code {code}"), logs))
        }
        ContainerState::Exited { code: None } => Some(Advice::new("the container has ended", logs)),
        ContainerState::Absent | ContainerState::Unknown => {
            Some(Advice::new("the container is in a state that is not known", format!("see `{kind} inspect {id}`")))
        }
    }
}

/// Whether the engine publishes the agent's port as the pod's settings have it; `None` where it cannot be told.
pub(super) fn is_published(evidence: &Evidence) -> Option<bool> {
    let container = evidence.container().filter(|container| container.state == ContainerState::Running)?;
    let port = evidence.pod.port.to_string();
    let reaches = |address: &String| {
        address.rsplit_once(':').is_some_and(|(ip, number)| number == port && matches!(ip, "127.0.0.1" | "0.0.0.0"))
    };
    Some(container.published.iter().any(reaches))
}

fn published_check(evidence: &Evidence, container: &Asked<Option<Container>>) -> Check {
    let Some(container) = container.answer().and_then(Option::as_ref) else {
        return Check::skipped("published", "because there is no container");
    };
    let list = if container.published.is_empty() { "nothing".to_owned() } else { container.published.join(", ") };
    let seen = format!("{list} -> 8765/tcp of the container");
    match is_published(evidence) {
        None => Check::skipped("published", "because the container does not run"),
        Some(false) => Check::failed("published", seen, super::legs::not_published(evidence)),
        Some(true) if container.published.iter().any(|address| !address.starts_with("127.")) => {
            let advice = Advice::new(
                "the agent's port is open to the network",
                "publish it on 127.0.0.1 alone, in compose.override.yaml",
            );
            Check::warning("published", seen, advice)
        }
        Some(true) => Check::ok("published", seen),
    }
}
