//! The names a request may call the agent by, and the web origins it may come from.
//!
//! A web page can make a browser send requests to a loopback port, under a name that resolves to it (DNS rebinding).
//! Its `Host` and `Origin` give it away. The port of a host is never compared: forwarding changes it.

use std::{net::IpAddr, str::FromStr};

/// A host without its port, in one spelling: lower case, no trailing dot, addresses as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(Name);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Address(IpAddr),
    Text(String),
}

/// The text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host; expected a name or an address such as guest.example, 10.0.2.15 or [fd00::1], without a scheme")]
pub struct MalformedHost;

impl HostName {
    /// Reads what stands in a `Host` header or a target's authority: a host and perhaps a port.
    ///
    /// `localhost.` is `localhost`: the dot only says that the name is complete.
    pub(super) fn of_authority(text: &str) -> Option<Self> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let address: std::net::Ipv6Addr = address.parse().ok()?;
            (Name::Address(address.into()), port)
        } else {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (Name::of_text(host)?, port)
        };
        let port_is_one = port.is_empty() || port.strip_prefix(':')?.bytes().all(|c| c.is_ascii_digit());
        port_is_one.then_some(Self(host))
    }

    /// `localhost`, 127.0.0.0/8 or `[::1]`: what nobody else's name server can hand out.
    pub(super) fn is_loopback(&self) -> bool {
        match &self.0 {
            Name::Address(address) => address.is_loopback(),
            Name::Text(name) => name == "localhost",
        }
    }
}

impl Name {
    fn of_text(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let good = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
            && name.split('.').all(|label| !label.is_empty());
        good.then(|| Self::Text(name.to_ascii_lowercase()))
    }
}

impl FromStr for HostName {
    type Err = MalformedHost;

    fn from_str(text: &str) -> Result<Self, MalformedHost> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(Name::Address(address)));
        }
        Self::of_authority(text).ok_or(MalformedHost)
    }
}

/// A web origin, as browsers write it: scheme, host and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// The text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an origin; expected scheme://host[:port] and nothing after it, such as https://app.example:8443")]
pub struct MalformedOrigin;

impl Origin {
    /// Whether a request's `Origin` header names this one.
    pub(super) fn is(&self, header: &[u8]) -> bool {
        self.0.as_bytes().eq_ignore_ascii_case(header)
    }
}

impl FromStr for Origin {
    type Err = MalformedOrigin;

    fn from_str(text: &str) -> Result<Self, MalformedOrigin> {
        let (scheme, rest) = text.split_once("://").ok_or(MalformedOrigin)?;
        let good = !scheme.is_empty()
            && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.'))
            && HostName::of_authority(rest).is_some();
        if good { Ok(Self(text.to_ascii_lowercase())) } else { Err(MalformedOrigin) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_loopback(text: &str) -> bool {
        HostName::of_authority(text).is_some_and(|host| host.is_loopback())
    }

    #[test]
    fn loopback_in_every_spelling_and_nothing_else() {
        for text in [
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "localhost:",
            "127.0.0.1:9999",
            "127.8.9.10",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_loopback(text), "{text}");
        }
        for text in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "0177.0.0.1",
            "::1",
            "[::1",
            "[::1]x",
            "[::2]",
            "user@localhost",
            "localhost:80:80",
            "localhost:8a",
            "localhost..",
            "10.0.2.15",
            "0.0.0.0",
            "localhost/",
            "[::ffff:8.8.8.8]",
            "loc alhost",
        ] {
            assert!(!is_loopback(text), "{text}");
        }
    }

    #[test]
    fn allowed_names_match_whatever_their_spelling() {
        for (allowed, header) in [
            ("Guest.Example", "guest.example:8765"),
            ("guest.example.", "GUEST.EXAMPLE"),
            ("10.0.2.15", "10.0.2.15:1"),
            ("fd00::1", "[fd00:0::1]:8765"),
            ("[fd00::1]", "[fd00::1]"),
        ] {
            assert_eq!(Some(allowed.parse::<HostName>().unwrap()), HostName::of_authority(header));
        }
        for text in ["", "*", "http://x", "a b", "a/b"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }

    #[test]
    fn origins_are_whole() {
        let origin: Origin = "https://App.example:8443".parse().unwrap();
        assert!(origin.is(b"https://app.example:8443"));
        assert!(!origin.is(b"https://app.example") && !origin.is(b"null"));
        for text in ["*", "null", "app.example", "https://", "https://a/", "://a", "https://*"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
