//! One pod: its name, its folder, and its settings in `pod.yaml`.

use std::{io::Read as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Error, ErrorKind, Home, PodName, Result};
use crate::{
    compose::Secret,
    token::{self, Owners, Token, TokenError},
};

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

impl AgentKind {
    /// What an agent of this kind cannot do of that which podlink offers, as a sentence about it; `None` where nothing.
    pub const fn limits(self) -> Option<&'static str> {
        match self {
            Self::Podlink => None,
            Self::Winpodx => Some(
                "winpodx' agent runs PowerShell scripts and no more: no other shells or programs, no input, variables or \
                 folder, no terminals, jobs, sessions, events or logs, no lists, figures or clock of the guest, and a call \
                 cannot be cancelled",
            ),
        }
    }
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
    /// The container and the machine in it; `None` for a pod that never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// The container and the virtual machine in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The container's image.
    pub image: String,
    /// Processors.
    pub cpus: u32,
    /// Memory: `4G`.
    pub ram: String,
    /// Disk: `64G`.
    pub disk: String,
    /// The user that the installation makes.
    pub user: String,
    /// That user's password.
    pub password: Secret,
    /// The time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The image's `NETWORK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// A pod that `setup` has made.
#[derive(Debug, Clone)]
pub struct Pod {
    name: PodName,
    dir: PathBuf,
    project: String,
    storage: PathBuf,
    settings: PodSettings,
}

impl PodSettings {
    /// Reads `pod.yaml`.
    ///
    /// # Errors
    /// What is wrong and where, without any of the content: it holds a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_yaml::from_str(text).map_err(|error| match error.location() {
            Some(place) => format!("line {}, column {} is not as setup writes it", place.line(), place.column()),
            None => "it is not as setup writes it".to_owned(),
        })
    }
}

impl EngineKind {
    /// As it is typed and written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Local => "local",
        }
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::fmt::Display for GuestOs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl GuestOs {
    /// As it is typed and written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Linux => "linux",
        }
    }
}

/// Reads `pod.yaml`; a link or a pipe in its place is refused, and nothing is changed about it.
fn read_settings(path: &std::path::Path) -> std::io::Result<String> {
    /// None of ours comes near it.
    const MAX: u64 = 1 << 20;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl Pod {
    /// The settings' file name in the pod's folder.
    pub const SETTINGS_FILE: &str = "pod.yaml";
    /// The file that `setup` writes for the container engines.
    pub const COMPOSE_FILE: &str = "compose.yaml";
    /// The user's own file beside it, which the engines merge.
    pub const OVERRIDE_FILE: &str = "compose.override.yaml";
    /// The folder that becomes `/oem` in the container.
    pub const OEM_DIR: &str = "oem";
    /// The folder that becomes `/shared` in the container.
    pub const SHARE_DIR: &str = "share";

    /// Reads a pod's settings.
    ///
    /// # Errors
    /// [`ErrorKind::NoPod`] where `setup` has not made it; [`ErrorKind::Settings`] where the file does not read.
    pub fn load(home: &Home, name: &PodName) -> Result<Self> {
        let dir = home.pod_dir(name);
        let path = dir.join(Self::SETTINGS_FILE);
        let text = match read_settings(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NoPod, format!("there is no pod named {name}"))
                    .with_hint(format!("make it with `podlink setup --pod {name}`")));
            }
            Err(error) => {
                let detail = format!("could not read the pod's settings, {}", path.display());
                return Err(Error::new(ErrorKind::File, detail).with_source(error));
            }
        };
        let settings = PodSettings::parse(&text).map_err(|reason| {
            Error::new(ErrorKind::Settings, format!("{} does not read: {reason}", path.display()))
                .with_hint(format!("mend it, or move it away and make it anew with `podlink setup --pod {name}`"))
        })?;
        Ok(Self { name: name.clone(), dir, project: home.project(name), storage: home.storage_dir(name), settings })
    }

    /// The compose project's name, which no other pod of this machine's user has.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The pod's name.
    pub const fn name(&self) -> &PodName {
        &self.name
    }

    /// The pod's folder.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// The folder of its virtual disk.
    pub fn storage(&self) -> &std::path::Path {
        &self.storage
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
        token::load(&self.dir.join(token::TOKEN_FILE), Owners::Us).map_err(|error| {
            let name = &self.name;
            let hint = match &error {
                TokenError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    format!("`podlink setup --pod {name}` restores it from the copy that was staged for the guest")
                }
                _ => format!("put it right, or remove it and run `podlink setup --pod {name}`"),
            };
            Error::from(error).with_hint(hint)
        })
    }

    /// Where its agent answers.
    pub fn address(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.settings.ports.agent).into()
    }
}
