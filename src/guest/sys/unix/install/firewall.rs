//! firewalld: the port is opened in the configuration that runs, never in the one that lasts.
//!
//! A rule that lasts would outlive the agent. What runs is forgotten when firewalld is reloaded or started again, so
//! that each start of the agent opens the port anew.

use std::{io::ErrorKind, path::Path};

use crate::guest::install::{Tool, Verdict};

/// What is opened does not last.
pub(in crate::guest) const FIREWALL_FORGETS: bool = true;

const COMMAND: &str = "firewall-cmd";

/// Lets everybody in by these ports.
pub(in crate::guest) async fn open_firewall(ports: &[u16]) -> Verdict {
    if let Some(verdict) = absent().await {
        return verdict;
    }
    for port in ports {
        let known = Tool::run(COMMAND, &[&format!("--query-port={port}/tcp")]).await;
        if known.is_ok_and(|known| known.succeeded) {
            continue;
        }
        match Tool::run(COMMAND, &[&format!("--add-port={port}/tcp")]).await {
            Ok(added) if added.succeeded => {}
            Ok(added) => return Verdict::Failed(format!("firewalld does not open port {port}: {}", added.said)),
            Err(error) => return Verdict::failed(error),
        }
    }
    Verdict::Done(Some("open in firewalld until it is reloaded; opened again at each start of the agent".to_owned()))
}

/// Closes them again.
pub(in crate::guest) async fn close_firewall(ports: &[u16]) -> Verdict {
    if absent().await.is_some() {
        return Verdict::DONE;
    }
    for port in ports {
        match Tool::run(COMMAND, &[&format!("--remove-port={port}/tcp")]).await {
            Ok(removed) if removed.succeeded => {}
            Ok(removed) => return Verdict::Failed(format!("firewalld does not close port {port}: {}", removed.said)),
            Err(error) => return Verdict::failed(error),
        }
    }
    Verdict::DONE
}

/// Why there is no firewalld to be asked.
async fn absent() -> Option<Verdict> {
    match Tool::run(COMMAND, &["--state"]).await {
        Ok(state) if state.succeeded && state.stdout.trim() == "running" => None,
        Ok(_) => Some(Verdict::Unavailable("firewalld does not run".to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some(Verdict::Unavailable("there is no firewalld; another firewall is yours to open".to_owned()))
        }
        Err(error) => Some(Verdict::failed(error)),
    }
}

/// Nothing here scans programs.
pub(in crate::guest) async fn exclude_from_scans(_folder: &Path) -> Verdict {
    Verdict::Unavailable("Microsoft Defender is Windows'".to_owned())
}

/// Nothing to undo.
pub(in crate::guest) async fn include_in_scans(_folder: &Path) -> Verdict {
    Verdict::DONE
}
