//! The container runs, its port is published, and no agent answers: where in the container or the guest it breaks.
//!
//! What connections meet differs by network mode and engine; measured:
//!
//! | broken | podman | docker |
//! | --- | --- | --- |
//! | no `USER_PORTS` in user-mode networking | refused | connected, then reset |
//! | agent on the guest's loopback, slirp or passt | connected, then reset or closed | the same |
//! | agent on the guest's loopback, NAT | refused | connected, then reset or closed |
//! | guest boots, hangs, or its firewall drops the port | silence, or no connection | silence |

use std::time::Duration;

use super::{Evidence, Try, check::Advice, legs, words};
use crate::{
    compose::{guest_port, names_agent_port},
    host::{
        EngineKind, GuestOs,
        engine::{Container, NetworkMode},
    },
};

/// Within it silence is a boot before it is anything else: what Windows takes to boot without hardware support.
const WINDOWS_BOOT: Duration = Duration::from_mins(10);
/// And Linux.
const LINUX_BOOT: Duration = Duration::from_mins(2);

/// The most likely cause, the second where there is one, and what to do.
pub(super) fn broken(evidence: &Evidence, container: &Container) -> Advice {
    let kind = evidence.pod.engine;
    let logs = format!("`{kind} logs {}`", container.id);
    if container.network.as_deref().is_some_and(|network| network.eq_ignore_ascii_case("n")) {
        return Advice::new(
            "the guest has no network at all: NETWORK is N",
            format!("{}, then {}", words::setup(evidence, " --network Y"), words::remake(evidence)),
        );
    }
    let inside = evidence.inside();
    if inside.is_some_and(|inside| !inside.qemu) {
        return Advice::new(
            "the container runs and no QEMU runs in it: the image still prepares the machine, or the VM has ended",
            format!("{logs} says which; {} starts it again", words::command(evidence, "restart")),
        );
    }
    let nat = evidence.mode() == Some(NetworkMode::Nat);
    if !nat && !container.user_ports.as_deref().is_some_and(names_agent_port) {
        return legs::no_forward(evidence);
    }
    if !nat && inside.is_some_and(|inside| !inside.forward) {
        let mode = mode(evidence);
        return Advice::new(
            format!(
                "nothing in the container forwards port {}{mode} although USER_PORTS has it: the VM is just starting, or the image refused the port",
                guest_port::AGENT
            ),
            format!("{logs} says which"),
        );
    }
    match evidence.outcome() {
        Some(Try::Refused) if kind == EngineKind::Docker || inside.is_some_and(|inside| inside.forward) => Advice::new(
            format!("{kind} says that it publishes port {} and nothing listens there", evidence.pod.port),
            words::command(evidence, "restart"),
        ),
        Some(Try::Refused | Try::Reset | Try::Closed) => no_agent(evidence),
        _ => no_guest(evidence, container),
    }
}

fn mode(evidence: &Evidence) -> String {
    match (evidence.mode(), evidence.network_setting()) {
        (Some(mode), _) => format!(" (network mode {})", mode.as_str()),
        (None, Some(setting)) => format!(" (NETWORK {setting})"),
        (None, None) => " (NETWORK not set: NAT, else user mode)".to_owned(),
    }
}

/// The guest turns connections away.
fn no_agent(evidence: &Evidence) -> Advice {
    let mode = mode(evidence);
    Advice::new(
        format!(
            "the guest is reached{mode} and turns connections to port {} away: the agent does not run there, or it listens on the guest's loopback only, which no forward reaches",
            guest_port::AGENT
        ),
        format!("start it in the guest with `podlink agent serve --listen 0.0.0.0:{}`", guest_port::AGENT),
    )
}

/// Nothing comes back.
fn no_guest(evidence: &Evidence, container: &Container) -> Advice {
    let (mode, port, wait) = (mode(evidence), guest_port::AGENT, words::command(evidence, "wait-ready"));
    let (boot, open) = match evidence.pod.guest {
        GuestOs::Windows => (
            WINDOWS_BOOT,
            format!(
                "`netsh advfirewall firewall add rule name=podlink dir=in action=allow protocol=TCP localport={port}` in the guest"
            ),
        ),
        GuestOs::Linux => (LINUX_BOOT, format!("open TCP port {port} in the guest, as by `ufw allow {port}/tcp`")),
    };
    let up = container.running_for.map(|up| format!(", up for {} s", up.as_secs())).unwrap_or_default();
    if container.running_for.is_some_and(|up| up < boot) {
        return Advice::new(
            format!(
                "connections vanish in the guest{mode}{up}: it is still booting, or its firewall drops port {port}"
            ),
            format!("wait with {wait}; if it stays so, {open}"),
        );
    }
    Advice::new(
        format!(
            "connections vanish in the guest{mode}{up}: its firewall drops port {port}, or it hangs or still boots"
        ),
        format!("{open}; the web viewer shows whether it boots"),
    )
}
