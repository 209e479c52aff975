//! The two legs of the way from the host to the agent, checked in the file that is to be written.

use thiserror::Error;

use super::{file::parse, model::guest_port};

/// What is wrong with the legs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LegError {
    /// The file does not read.
    #[error("compose.yaml does not read, so its forwards cannot be checked")]
    Unreadable,
    /// From the container into the guest.
    #[error(
        "USER_PORTS is {found:?}, without the agent's port {}: nothing would be forwarded into the guest",
        guest_port::AGENT
    )]
    NoForward {
        /// What stands there.
        found: String,
    },
    /// From the host into the container.
    #[error("`ports` has no {wanted}: nothing would be published on the host")]
    NotPublished {
        /// The entry that is missing.
        wanted: String,
    },
    /// A port would be open to the network.
    #[error("`ports` publishes {entry}, which is not on 127.0.0.1")]
    BeyondLoopback {
        /// The entry.
        entry: String,
    },
}

/// Checks that the agent's port is forwarded into the guest and published on the host as `host_port`, and that
/// nothing is published beyond loopback.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_legs(compose_yaml: &str, host_port: u16) -> Result<(), LegError> {
    let file = parse(compose_yaml).map_err(|_| LegError::Unreadable)?;
    let wanted = format!("127.0.0.1:{host_port}:{}/tcp", guest_port::AGENT);
    for service in file.services.values() {
        let forwards = service.environment.get("USER_PORTS").map(|text| text.0.as_str()).unwrap_or_default();
        if !self::forwards(forwards, guest_port::AGENT) {
            return Err(LegError::NoForward { found: forwards.to_owned() });
        }
        // three parts: the two-part form publishes on every interface
        let beyond = |entry: &&str| !entry.starts_with("127.0.0.1:") || entry.split(':').count() != 3;
        let entries = || service.ports.iter().map(|entry| entry.0.as_str());
        if let Some(entry) = entries().find(beyond) {
            return Err(LegError::BeyondLoopback { entry: entry.to_owned() });
        }
        if !entries().any(|entry| entry == wanted) {
            return Err(LegError::NotPublished { wanted });
        }
    }
    if file.services.is_empty() { Err(LegError::NotPublished { wanted }) } else { Ok(()) }
}

/// Whether a list as `USER_PORTS` takes it names this port for TCP.
pub(super) fn forwards(list: &str, port: u16) -> bool {
    let port = port.to_string();
    list.split(',').any(|entry| entry.strip_suffix("/tcp").unwrap_or(entry) == port)
}

#[cfg(test)]
mod tests {
    use super::{
        super::render::{render, tests::sample},
        *,
    };

    #[test]
    fn each_broken_leg_is_named() {
        let good = render(&sample("a", "b")).unwrap();
        assert_eq!(check_legs(&good, 18765), Ok(()));
        assert!(
            matches!(check_legs(&good, 8765), Err(LegError::NotPublished { .. })),
            "another port than is published"
        );

        let broken = good.replace("\"8765\"", "\"8765 445\"");
        assert!(matches!(check_legs(&broken, 18765), Err(LegError::NoForward { .. })));
        let broken = good.replace("USER_PORTS", "OTHER");
        assert!(matches!(check_legs(&broken, 18765), Err(LegError::NoForward { .. })));
        for wide in ["0.0.0.0:3390:3389/udp", "3390:3389/udp", "127.0.0.1:3389/udp"] {
            let broken = good.replace("127.0.0.1:3390:3389/udp", wide);
            assert!(matches!(check_legs(&broken, 18765), Err(LegError::BeyondLoopback { .. })), "{wide}");
        }
        assert!(check_legs("services: {}\n", 1).is_err());
        assert_eq!(check_legs("[", 1), Err(LegError::Unreadable));
    }
}
