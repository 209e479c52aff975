//! The most likely cause of calls not being served, from all evidence together.

use super::{
    Asked, EngineEvidence, Evidence, ExecEvidence, LegsEvidence, Try, agent, check::Advice, engine, files, guest_leg,
    legs, port, words,
};
use crate::{
    host::{EngineKind, GuestOs, Seen, client::stage_sentence, engine::ContainerState},
    protocol::{Health, PROTOCOL_VERSION, Stage},
};

/// Why calls are not served; `None` where they are.
pub(super) fn cause(evidence: &Evidence) -> Option<Advice> {
    match evidence.outcome() {
        Some(Try::Answered(seen)) => answered(evidence, seen),
        _ => Some(unanswered(evidence)),
    }
}

/// Somebody answers: the way stands, the cause is behind it, or in its place.
fn answered(evidence: &Evidence, seen: &Seen) -> Option<Advice> {
    match seen {
        Seen::Ready(health) | Seen::NotReady(health) if wrong_protocol(health) => {
            let what = format!("the agent speaks protocol {} and this podlink {PROTOCOL_VERSION}", health.protocol);
            Some(Advice::new(what, "copy this podlink into the guest and start it there"))
        }
        _ if evidence.token.is_err() => {
            let why = evidence.token.as_ref().err().map(String::as_str).unwrap_or_default();
            Some(files::token_advice(evidence, why))
        }
        Seen::Ready(_) => served(evidence),
        Seen::NotReady(_) | Seen::TokenMismatch(_) if evidence.state() != Some(ContainerState::Running) => {
            let stranger = port::usurper(evidence).map(|owner| port::taken(evidence, owner));
            Some(stranger.unwrap_or_else(|| claimed(evidence, seen)))
        }
        Seen::NotReady(_) | Seen::TokenMismatch(_) => Some(claimed(evidence, seen)),
        Seen::Foreign { what, .. } => Some(foreign(evidence, what)),
        Seen::Refused | Seen::Reset | Seen::Silent => Some(unanswered(evidence)),
    }
}

/// An agent answers that is not ready or not ours, and stands where ours should.
fn claimed(evidence: &Evidence, seen: &Seen) -> Advice {
    match seen {
        Seen::NotReady(health) => not_ready(evidence, health),
        _ => agent::mismatch(evidence),
    }
}

fn wrong_protocol(health: &Health) -> bool {
    health.protocol != 0 && health.protocol != PROTOCOL_VERSION
}

/// The agent says that it is ready: what of its calls failed.
fn served(evidence: &Evidence) -> Option<Advice> {
    let seen = evidence.agent.as_ref()?;
    match (&seen.whoami, &seen.exec) {
        (Err((why, fix)), _) => Some(agent::refused(evidence, why, fix.as_deref())),
        (Ok(_), Asked::Failed(why)) => Some(agent::exec_advice(evidence, why)),
        (Ok(_), Asked::Answer(ExecEvidence::Ran { rc, .. })) if *rc != 0 => {
            Some(agent::exec_advice(evidence, &format!("an empty script ended with code {rc}")))
        }
        _ => None,
    }
}

/// 503: the agent itself says what it waits for.
fn not_ready(evidence: &Evidence, health: &Health) -> Advice {
    let says = stage_sentence(health.stage, &health.waiting_for);
    let wait = words::command(evidence, "wait-ready");
    match health.stage {
        Stage::WaitingForToken => Advice::new("the agent runs and waits for its token", agent::mismatch(evidence).fix),
        Stage::InstallFailed => Advice::new(
            format!("the guest's {}", says.trim_start_matches("the ")),
            match evidence.pod.guest {
                GuestOs::Windows => "repair what its log in the guest, C:\\OEM\\install.log, names, or install it anew",
                GuestOs::Linux => "repair what the installation's log in the guest names, or install it anew",
            },
        ),
        Stage::Draining => Advice::new("the agent is going down", format!("wait for its next start with {wait}")),
        _ => {
            Advice::new(format!("both legs stand and the guest is not ready yet ({says})"), format!("wait with {wait}"))
        }
    }
}

/// A complete answer that is not the agent's.
fn foreign(evidence: &Evidence, what: &str) -> Advice {
    if let Some(owner) = port::usurper(evidence) {
        return port::taken(evidence, owner);
    }
    let port = evidence.pod.port;
    if what.contains("agent: winpodx") {
        let file = evidence.pod.dir.join(crate::host::Pod::SETTINGS_FILE);
        return Advice::new(
            format!("on port {port} an agent of another kind answers"),
            format!("if it is winpodx', write the line `agent: winpodx` into {}", file.display()),
        );
    }
    if what.contains("refuses to answer this host") {
        return Advice::new(
            format!("on port {port} {what}"),
            "start the agent in the guest with `--allow-peer` and `--allow-host` for what it refuses; its log names it",
        );
    }
    let fix = if evidence.may_run() {
        format!("end the program that holds port 8765 in the guest, or what stands on port {port} of this host")
    } else {
        format!("end it, or give the pod another port with {}", words::setup(evidence, " --agent-port PORT"))
    };
    Advice::new(format!("on port {port} another program answers ({what})"), fix)
}

/// Nobody answers: the first broken thing on the way.
fn unanswered(evidence: &Evidence) -> Advice {
    if let Some(owner) = port::usurper(evidence).filter(|_| evidence.state() != Some(ContainerState::Paused)) {
        // a running container with its port published has it: then the name is one that is not known here
        if engine::is_published(evidence) != Some(true) {
            return port::taken(evidence, owner);
        }
    }
    match &evidence.engine {
        EngineEvidence::Local(state) => local(evidence, state),
        EngineEvidence::Container { program: Asked::Failed(why), .. }
        | EngineEvidence::Container { container: Asked::Failed(why), .. } => engine::engine_advice(evidence, why),
        EngineEvidence::Container { container: Asked::Answer(None), front_end, .. } => absent(evidence, front_end),
        EngineEvidence::Container { container: Asked::Answer(Some(container)), .. } => {
            if let Some(advice) = engine::state_advice(evidence, container) {
                return advice;
            }
            if engine::is_published(evidence) == Some(false) {
                return legs::not_published(evidence);
            }
            guest_leg::broken(evidence, container)
        }
        EngineEvidence::Container { container: Asked::Skipped, .. } => {
            engine::engine_advice(evidence, "the engine could not be asked")
        }
    }
}

/// There is no container: can one be made at all?
fn absent<T>(evidence: &Evidence, front_end: &Asked<T>) -> Advice {
    if let Asked::Failed(why) = front_end {
        let kind = evidence.pod.engine;
        return Advice::new(
            format!("the pod has no container and {kind}'s compose front end does not work: {why}"),
            format!("install {kind}-compose, then {}", words::command(evidence, "up")),
        );
    }
    match &evidence.legs {
        Some(LegsEvidence::Missing) => legs::unreadable(evidence, crate::compose::Origin::Compose),
        Some(LegsEvidence::Unreadable(origin)) => legs::unreadable(evidence, *origin),
        Some(LegsEvidence::Read(merged)) if !merged.published => legs::not_published(evidence),
        _ => Advice::new("the pod has no container", words::command(evidence, "up")),
    }
}

fn local(evidence: &Evidence, state: &Asked<ContainerState>) -> Advice {
    debug_assert_eq!(evidence.pod.engine, EngineKind::Local);
    if let Err(why) = &evidence.token {
        return files::token_advice(evidence, why);
    }
    match (state, evidence.outcome()) {
        (Asked::Answer(ContainerState::Running), Some(Try::Refused)) => Advice::new(
            format!(
                "the pod's agent runs and does not listen on port {}: it was started with another",
                evidence.pod.port
            ),
            words::remake(evidence),
        ),
        (Asked::Answer(ContainerState::Running), _) => Advice::new(
            "the pod's agent runs and does not answer: its process is stopped or overwhelmed",
            words::remake(evidence),
        ),
        (Asked::Failed(why), _) => Advice::new(why, format!("look at {}", evidence.pod.dir.display())),
        _ => Advice::new("the pod's agent does not run", words::command(evidence, "up")),
    }
}
