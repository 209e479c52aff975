//! Networks in CIDR form: which peers are admitted.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// A network: an address and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a network; expected an address or CIDR such as 10.0.0.0/8, 192.168.1.7 or fd00::/8")]
pub struct MalformedNetwork;

/// Loopback of both families.
const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128"];

/// What a container's forward can come from, besides loopback: private, shared (100.64/10) and link-local addresses.
///
/// The peer that a guest sees is not known beforehand (the engine's bridge, the forwarder's own), so the list only
/// keeps public addresses out; it is the token that admits.
const PRIVATE: &[&str] =
    &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7", "fe80::/10"];

impl Network {
    /// The networks admitted where none are named: loopback, and private ones once the agent listens beyond it.
    pub fn defaults(listen: &[SocketAddr]) -> Vec<Self> {
        let beyond = listen.iter().any(|address| !address.ip().to_canonical().is_loopback());
        let private = if beyond { PRIVATE } else { &[] };
        LOOPBACK.iter().chain(private).filter_map(|text| text.parse().ok()).collect()
    }

    /// Whether the address lies in it; an IPv4 address mapped into IPv6 is taken as the IPv4 one that it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = MalformedNetwork;

    fn from_str(text: &str) -> Result<Self, MalformedNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| MalformedNetwork)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) if prefix.bytes().all(|c| c.is_ascii_digit()) => {
                prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or(MalformedNetwork)?
            }
            Some(_) => return Err(MalformedNetwork),
            None => bits,
        };
        match (address, address.to_canonical()) {
            // peers are unwrapped before they are compared, so the network has to be as well
            (IpAddr::V6(_), IpAddr::V4(address)) if prefix >= 96 => {
                Ok(Self { address: address.into(), prefix: prefix - 96 })
            }
            _ => Ok(Self { address, prefix }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn addresses_are_matched() {
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(!inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("10.0.0.0/8", "::ffff:10.89.0.1"), "mapped addresses are unwrapped");
        assert!(inside("::ffff:10.0.0.0/104", "10.89.0.1"));
        assert!(inside("0.0.0.0/0", "8.8.8.8") && !inside("0.0.0.0/0", "::2"));
        assert!(inside("::/0", "2001:db8::1"));
        assert!(inside("192.168.1.7", "192.168.1.7") && !inside("192.168.1.7", "192.168.1.8"));
        assert!(inside("fe80::/10", "fe80::1") && !inside("fe80::/10", "fec0::1"));
    }

    #[test]
    fn what_is_not_a_network_is_refused() {
        for text in ["", "10.0.0.0/33", "::1/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "localhost", "1.2.3.4/8/8"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_defaults_widen_with_the_listener() {
        let admitted = |listen: &str, peer: &str| {
            let peer = peer.parse().unwrap();
            Network::defaults(&[listen.parse().unwrap()]).iter().any(|network| network.contains(peer))
        };
        assert!(admitted("127.0.0.1:1", "127.9.9.9") && admitted("[::1]:1", "::1"));
        assert!(!admitted("127.0.0.1:1", "10.0.2.2"));
        for peer in ["10.0.2.2", "172.31.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "fd00::1", "fe80::1", "::1"]
        {
            assert!(admitted("0.0.0.0:1", peer), "{peer}");
        }
        for peer in ["8.8.8.8", "172.32.0.1", "2001:db8::1", "100.128.0.1"] {
            assert!(!admitted("[::]:1", peer), "{peer}");
        }
    }
}
