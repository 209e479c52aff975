//! One pod: its name, its folder, and its settings in `pod.yaml`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Error, ErrorKind, Home, PodName, Result};
use crate::token::{self, Owners, Token};

/// What runs the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// podman, through its compose front end.
    Podman,
    /// Docker, through its compose front end.
    Docker,
    /// No container: the agent as a background process of this user on this machine.
    Local,
}

/// The guest's operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestOs {
    /// Windows.
    Windows,
    /// Linux.
    Linux,
}

/// What answers in the guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// podlink's own agent: it proves that it holds the token before it is sent to it.
    #[default]
    Podlink,
    /// winpodx' agent: no proof, no request ids; the token is sent without either.
    Winpodx,
}

/// The host's ports, all on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The agent's.
    pub agent: u16,
    /// Remote desktop; unused by the local engine.
    pub rdp: u16,
    /// The web viewer of the image; unused by the local engine.
    pub web: u16,
}

/// What `setup` decided, kept in `pod.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSettings {
    /// What runs the pod.
    pub engine: EngineKind,
    /// The guest's operating system.
    pub guest: GuestOs,
    /// What answers in the guest.
    #[serde(default)]
    pub agent: AgentKind,
    /// The host's ports.
    pub ports: Ports,
}

/// A pod that `setup` has made.
#[derive(Debug, Clone)]
pub struct Pod {
    name: PodName,
    dir: PathBuf,
    settings: PodSettings,
}

impl Pod {
    /// The settings' file name in the pod's folder.
    pub const SETTINGS_FILE: &str = "pod.yaml";

    /// Reads a pod's settings.
    ///
    /// # Errors
    /// [`ErrorKind::NoPod`] where `setup` has not made it; [`ErrorKind::Settings`] where the file does not read.
    pub fn load(home: &Home, name: &PodName) -> Result<Self> {
        let dir = home.pod_dir(name);
        let path = dir.join(Self::SETTINGS_FILE);
        let text = match fs_err::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NoPod, format!("there is no pod named {name}"))
                    .with_hint(format!("make it with `podlink setup --pod {name}`")));
            }
            Err(error) => {
                return Err(Error::new(ErrorKind::File, "could not read the pod's settings").with_source(error));
            }
        };
        let settings = serde_yaml::from_str(&text).map_err(|error| {
            Error::new(ErrorKind::Settings, format!("{} does not read", path.display())).with_source(error.to_string())
        })?;
        Ok(Self { name: name.clone(), dir, settings })
    }

    /// The pod's name.
    pub const fn name(&self) -> &PodName {
        &self.name
    }

    /// The pod's folder.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Its settings.
    pub const fn settings(&self) -> &PodSettings {
        &self.settings
    }

    /// Its token.
    ///
    /// # Errors
    /// When the file is missing, foreign or malformed.
    pub fn token(&self) -> Result<Token> {
        Ok(token::load(&self.dir.join(token::TOKEN_FILE), Owners::Us)?)
    }

    /// Where its agent answers.
    pub fn address(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.settings.ports.agent).into()
    }
}
