//! Both legs as the engine will see them: `compose.yaml` with the user's `compose.override.yaml` merged in.
//!
//! Implementation note: the override is the user's and may be written in any of compose's ways, so it is read
//! leniently, as plain values. Merged is what matters here alone: variables go by their key, ports are added.

use serde_json::Value;

use super::{legs::forwards, model::guest_port};

/// The service that `setup` writes.
const SERVICE: &str = "guest";

/// In which of the two files something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `compose.yaml`.
    Compose,
    /// `compose.override.yaml`.
    Override,
}

/// What the two files say of the way to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedLegs {
    /// `USER_PORTS`, and which file has the last word on it.
    pub user_ports: Option<(String, Origin)>,
    /// The image, as the engine is to be asked for it.
    pub image: Option<String>,
    /// The image's `NETWORK`.
    pub network: Option<String>,
    /// Whether the agent's port is published on 127.0.0.1 under the pod's host port.
    pub published: bool,
    /// What is published beyond loopback.
    pub beyond_loopback: Vec<String>,
}

impl MergedLegs {
    /// Whether the image is told to forward the agent's port into the guest.
    pub fn forwards_agent(&self) -> bool {
        self.user_ports.as_ref().is_some_and(|(list, _)| names_agent_port(list))
    }
}

/// Whether a `USER_PORTS` names the agent's port.
pub fn names_agent_port(user_ports: &str) -> bool {
    forwards(user_ports, guest_port::AGENT)
}

/// Which file does not read; without its content, for it holds a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable(pub Origin);

/// Reads both files as far as the legs go.
///
/// # Errors
/// When a file is no YAML, or the first has no service.
pub fn merged_legs(compose: &str, overriding: Option<&str>, host_port: u16) -> Result<MergedLegs, Unreadable> {
    let base: Value = serde_yaml::from_str(compose).map_err(|_| Unreadable(Origin::Compose))?;
    let services = base.get("services").and_then(Value::as_object).ok_or(Unreadable(Origin::Compose))?;
    let (name, service) =
        services.get_key_value(SERVICE).or_else(|| services.iter().next()).ok_or(Unreadable(Origin::Compose))?;
    let mut legs = MergedLegs::default();
    add(&mut legs, service, Origin::Compose, host_port);
    if let Some(text) = overriding.filter(|text| !text.trim().is_empty()) {
        let over: Value = serde_yaml::from_str(text).map_err(|_| Unreadable(Origin::Override))?;
        if let Some(service) = over.get("services").and_then(|services| services.get(name)) {
            add(&mut legs, service, Origin::Override, host_port);
        }
    }
    Ok(legs)
}

fn add(legs: &mut MergedLegs, service: &Value, origin: Origin, host_port: u16) {
    if let Some(image) = service.get("image").and_then(Value::as_str) {
        legs.image = Some(image.replace("$$", "$"));
    }
    if let Some(list) = variable(service, "USER_PORTS") {
        legs.user_ports = Some((list, origin));
    }
    if let Some(network) = variable(service, "NETWORK") {
        legs.network = Some(network).filter(|network| !network.is_empty());
    }
    let entries = service.get("ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for entry in entries {
        let port = PublishedPort::read(entry);
        if port.host_ip.as_deref() != Some("127.0.0.1") {
            legs.beyond_loopback.push(shown(entry));
        } else if port.host == Some(host_port) && port.guest == Some(guest_port::AGENT) && port.is_tcp {
            legs.published = true;
        }
    }
}

/// A variable of the service, in either of compose's forms.
fn variable(service: &Value, name: &str) -> Option<String> {
    match service.get("environment")? {
        Value::Object(map) => map.get(name).map(text),
        Value::Array(list) => list.iter().find_map(|entry| {
            let (key, value) = entry.as_str()?.split_once('=')?;
            (key == name).then(|| value.to_owned())
        }),
        _ => None,
    }
}

/// A value as a variable has it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// An entry of `ports` as it may be shown: ports hold no secrets.
fn shown(entry: &Value) -> String {
    text(entry)
}

struct PublishedPort {
    host_ip: Option<String>,
    host: Option<u16>,
    guest: Option<u16>,
    is_tcp: bool,
}

impl PublishedPort {
    fn read(entry: &Value) -> Self {
        if let Value::Object(_) = entry {
            let field = |name: &str| entry.get(name).map(text);
            return Self {
                host_ip: field("host_ip"),
                host: field("published").and_then(|port| port.parse().ok()),
                guest: field("target").and_then(|port| port.parse().ok()),
                is_tcp: field("protocol").is_none_or(|protocol| protocol == "tcp"),
            };
        }
        let whole = text(entry);
        let (numbers, protocol) = whole.split_once('/').unwrap_or((&whole, "tcp"));
        let mut parts = numbers.rsplitn(3, ':');
        let guest = parts.next().and_then(|port| port.parse().ok());
        let host = parts.next().and_then(|port| port.parse().ok());
        Self { host_ip: parts.next().map(str::to_owned), host, guest, is_tcp: protocol == "tcp" }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::render::{render, tests::sample},
        *,
    };

    fn good() -> String {
        render(&sample("a", "b")).unwrap().to_string()
    }

    #[test]
    fn what_setup_writes_has_both_legs() {
        let legs = merged_legs(&good(), None, 18765).unwrap();
        assert!(legs.forwards_agent() && legs.published && legs.beyond_loopback.is_empty(), "{legs:?}");
        assert!(!merged_legs(&good(), None, 1).unwrap().published);
        for without in [good().replace("USER_PORTS", "OTHER"), good().replace("\"8765\"", "\"8765 445\"")] {
            assert!(!merged_legs(&without, None, 18765).unwrap().forwards_agent());
        }
    }

    #[test]
    fn the_override_has_the_last_word_on_variables_and_adds_ports() {
        let with = |text: &str| merged_legs(&good(), Some(text), 18765).unwrap();
        let legs = with("services:\n  guest:\n    environment:\n      USER_PORTS: 445\n");
        assert_eq!(legs.user_ports, Some(("445".to_owned(), Origin::Override)));
        assert!(!legs.forwards_agent());
        assert!(with("services: {guest: {environment: [\"USER_PORTS=445,8765/tcp\"]}}").forwards_agent());
        assert_eq!(with("services: {guest: {environment: {NETWORK: slirp}}}").network.as_deref(), Some("slirp"));
        let legs = with("services: {guest: {ports: [\"8765:8765\", {target: 5, published: 6, host_ip: 127.0.0.1}]}}");
        assert!(legs.published);
        assert_eq!(legs.beyond_loopback, ["8765:8765"]);
        assert_eq!(with("services: {other: {environment: {USER_PORTS: 1}}}"), with(""));

        let moved = good().replace("18765:8765", "1:8765");
        let long =
            "services: {guest: {ports: [{target: 8765, published: \"18765\", host_ip: 127.0.0.1, protocol: tcp}]}}";
        assert!(merged_legs(&moved, Some(long), 18765).unwrap().published);
    }

    #[test]
    fn what_does_not_read_is_named() {
        assert_eq!(merged_legs("[", None, 1), Err(Unreadable(Origin::Compose)));
        assert_eq!(merged_legs("services: {}", None, 1), Err(Unreadable(Origin::Compose)));
        assert_eq!(merged_legs(&good(), Some("a: ["), 1), Err(Unreadable(Origin::Override)));
    }
}
