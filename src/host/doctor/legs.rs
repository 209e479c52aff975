//! The check of both legs in the compose files, the user's override merged in.

use super::{
    Evidence, LegsEvidence,
    check::{Advice, Check},
    words,
};
use crate::{
    compose::{Origin, guest_port, merged_legs},
    host::{EngineKind, Pod, engine::NetworkMode},
};

/// Reads the files.
pub(super) fn gather(pod: &Pod) -> Option<LegsEvidence> {
    if pod.settings().engine == EngineKind::Local {
        return None;
    }
    let Ok(compose) = fs_err::read_to_string(pod.dir().join(Pod::COMPOSE_FILE)) else {
        return Some(LegsEvidence::Missing);
    };
    let path = pod.dir().join(Pod::OVERRIDE_FILE);
    let overriding = match fs_err::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => return Some(LegsEvidence::Unreadable(Origin::Override)),
    };
    Some(match merged_legs(&compose, overriding.as_deref(), pod.settings().ports.agent) {
        Ok(legs) => LegsEvidence::Read(legs),
        Err(unreadable) => LegsEvidence::Unreadable(unreadable.0),
    })
}

const fn file_of(origin: Origin) -> &'static str {
    match origin {
        Origin::Compose => Pod::COMPOSE_FILE,
        Origin::Override => Pod::OVERRIDE_FILE,
    }
}

/// The line `legs`.
pub(super) fn checks(evidence: &Evidence) -> Vec<Check> {
    let check = match &evidence.legs {
        None => Check::skipped("legs", "the local engine has none"),
        Some(LegsEvidence::Missing) => {
            Check::failed("legs", "compose.yaml is missing", unreadable(evidence, Origin::Compose))
        }
        Some(LegsEvidence::Unreadable(origin)) => {
            Check::failed("legs", format!("{} does not read", file_of(*origin)), unreadable(evidence, *origin))
        }
        Some(LegsEvidence::Read(legs)) => {
            let list =
                legs.user_ports.as_ref().map_or_else(|| "is missing".to_owned(), |(list, _)| format!("{list:?}"));
            let published = if legs.published { "is" } else { "is not" };
            let entry = entry(evidence);
            let seen = format!("USER_PORTS {list}, {entry} {published} in `ports`");
            if !legs.published {
                Check::failed("legs", seen, not_published(evidence))
            } else if !legs.forwards_agent() && evidence.mode() == Some(NetworkMode::Nat) {
                let Advice { fix, .. } = no_forward(evidence);
                let what = "USER_PORTS does not name the agent's port, which NAT does without and every other network mode needs";
                Check::warning("legs", seen, Advice::new(what, fix))
            } else if !legs.forwards_agent() {
                Check::failed("legs", seen, no_forward(evidence))
            } else if let Some(wide) = legs.beyond_loopback.first() {
                let what = format!("`ports` publishes {wide} to the network");
                Check::warning("legs", seen, Advice::new(what, "put `127.0.0.1:` before it in compose.override.yaml"))
            } else {
                Check::ok("legs", seen)
            }
        }
    };
    vec![check]
}

/// What to do about a file that does not read.
pub(super) fn unreadable(evidence: &Evidence, origin: Origin) -> Advice {
    match origin {
        Origin::Compose => Advice::new(
            "compose.yaml is missing or does not read",
            format!("{} writes it anew", words::setup(evidence, "")),
        ),
        Origin::Override => Advice::new(
            "compose.override.yaml does not read",
            format!("mend {}", evidence.pod.dir.join(Pod::OVERRIDE_FILE).display()),
        ),
    }
}

fn entry(evidence: &Evidence) -> String {
    format!("127.0.0.1:{}:{}/tcp", evidence.pod.port, guest_port::AGENT)
}

/// What to do where the host's leg is missing: in the file, or only in the container that runs.
pub(super) fn not_published(evidence: &Evidence) -> Advice {
    let port = evidence.pod.port;
    if evidence.merged().is_some_and(|legs| legs.published) {
        return Advice::new(
            format!(
                "the container does not publish the agent's port on 127.0.0.1:{port} although compose.yaml says so: it was made from an older file"
            ),
            words::remake(evidence),
        );
    }
    Advice::new(
        format!(
            "the host's leg is missing: `ports` in compose.yaml does not publish the agent's port on 127.0.0.1:{port}"
        ),
        format!(
            "add the line `- \"{}\"` under `ports:` ({} does), then {}",
            entry(evidence),
            words::setup(evidence, ""),
            words::remake(evidence)
        ),
    )
}

/// What to do where the guest's leg is missing: in the file, in the user's override, or only in the container.
pub(super) fn no_forward(evidence: &Evidence) -> Advice {
    let mode = match (evidence.mode(), evidence.network_setting()) {
        (Some(mode), _) => format!(" (network mode {})", mode.as_str()),
        (None, Some(setting)) => format!(" (NETWORK {setting})"),
        (None, None) => String::new(),
    };
    let legs = evidence.merged();
    if legs.is_some_and(crate::compose::MergedLegs::forwards_agent) {
        return Advice::new(
            format!(
                "the container was made without the agent's port in USER_PORTS{mode} although compose.yaml has it: it was made from an older file"
            ),
            words::remake(evidence),
        );
    }
    let agent = guest_port::AGENT;
    match legs.and_then(|legs| legs.user_ports.as_ref()) {
        Some((list, origin)) => {
            let file = file_of(*origin);
            // a blank would join two numbers to one: the images strip blanks before they split
            let mut ports: Vec<String> =
                list.split([',', ' ']).map(str::trim).filter(|port| !port.is_empty()).map(str::to_owned).collect();
            if !ports.iter().any(|port| *port == agent.to_string()) {
                ports.insert(0, agent.to_string());
            }
            let (line, remake) = (ports.join(","), words::remake(evidence));
            Advice::new(
                format!(
                    "the guest's leg is missing: USER_PORTS in {file} is {list:?}{mode}, so nothing forwards port {agent} into the guest"
                ),
                format!("make the line `USER_PORTS: \"{line}\"` in {file}, then {remake}"),
            )
        }
        None => Advice::new(
            format!(
                "the guest's leg is missing: compose.yaml has no USER_PORTS{mode}, so nothing forwards port {agent} into the guest"
            ),
            format!(
                "add the line `USER_PORTS: \"{agent}\"` under `environment:` ({} does), then {}",
                words::setup(evidence, ""),
                words::remake(evidence)
            ),
        ),
    }
}
