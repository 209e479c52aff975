//! The pod's ports: as asked, as they were, or the first that is free.

use crate::host::{
    Error, ErrorKind, Home, Pod, PodName, Ports, Result,
    ports::{Transport, is_free, require_free},
};

/// One of the three.
struct Wanted {
    label: &'static str,
    flag: &'static str,
    default: u16,
    transport: Transport,
    asked: Option<u16>,
    earlier: Option<u16>,
}

/// Chooses them. `runs` tells whether the pod itself runs, so that its own listening is no conflict.
///
/// # Errors
/// When one that was asked for is taken, or one is to serve twice.
pub(super) fn choose(
    home: &Home,
    name: &PodName,
    asked: [Option<u16>; 3],
    earlier: Option<&Ports>,
    runs: bool,
) -> Result<Ports> {
    let [agent, rdp, web] = asked;
    let wanted = [
        Wanted {
            label: "agent",
            flag: "--agent-port",
            default: 8765,
            transport: Transport::Tcp,
            asked: agent,
            earlier: earlier.map(|ports| ports.agent),
        },
        Wanted {
            label: "remote desktop",
            flag: "--rdp-port",
            default: 3389,
            transport: Transport::TcpAndUdp,
            asked: rdp,
            earlier: earlier.map(|ports| ports.rdp),
        },
        Wanted {
            label: "web viewer",
            flag: "--web-port",
            default: 8006,
            transport: Transport::Tcp,
            asked: web,
            earlier: earlier.map(|ports| ports.web),
        },
    ];
    // fixed ones first, so that a free one is not chosen in their place
    let mut chosen = [None; 3];
    for (slot, wanted) in chosen.iter_mut().zip(&wanted) {
        if let Some(port) = wanted.asked {
            let our_own = runs && wanted.earlier == Some(port);
            if port == 0 {
                return Err(Error::new(ErrorKind::Settings, format!("{} is 0", wanted.flag))
                    .with_hint("name a port, or leave the flag out"));
            }
            if !our_own {
                require_free(wanted.label, port, wanted.transport).map_err(|error| {
                    error.with_hint(format!("end that program, or choose another with `{}`", wanted.flag))
                })?;
            }
        }
        *slot = wanted.asked.or(wanted.earlier);
    }
    let others: Vec<u16> = home
        .pods()
        .iter()
        .filter(|other| *other != name)
        .filter_map(|other| Pod::load(home, other).ok())
        .flat_map(|pod| {
            let ports = &pod.settings().ports;
            [ports.agent, ports.rdp, ports.web]
        })
        .collect();
    for index in 0..chosen.len() {
        if chosen[index].is_none() {
            let Wanted { label, flag, default, transport, .. } = wanted[index];
            let free = (default..=u16::MAX)
                .find(|port| !chosen.contains(&Some(*port)) && !others.contains(port) && is_free(*port, transport));
            chosen[index] = Some(free.ok_or_else(|| {
                Error::new(ErrorKind::PortTaken, format!("no port from {default} on is free for the {label}"))
                    .with_hint(format!("name one with `{flag}`"))
            })?);
        }
    }
    let flags = wanted.each_ref().map(|wanted| wanted.flag);
    for (index, wanted) in wanted.iter().enumerate() {
        if let Some(other) = chosen[..index].iter().position(|port| *port == chosen[index]) {
            let port = chosen[index].unwrap_or_default();
            return Err(Error::new(ErrorKind::Settings, format!("port {port} would serve twice in this pod"))
                .with_hint(format!("choose another with `{}` or `{}`", flags[other], wanted.flag)));
        }
    }
    let [agent, rdp, web] = chosen.map(Option::unwrap_or_default);
    Ok(Ports { agent, rdp, web })
}
