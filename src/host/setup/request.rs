//! What a setup is asked for; what it is not asked for stays as it was.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::{
    compose::Secret,
    host::{AgentKind, EngineKind, Error, ErrorKind, GuestOs, Result},
};

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// podman where it is found, else docker; never the local one.
    Auto,
    /// This one.
    Given(EngineKind),
}

/// What a setup is asked for. `None` keeps what the pod has, or means the default for a new one.
#[derive(Debug, Clone, Default)]
pub struct SetupRequest {
    /// The engine.
    pub engine: Option<EngineChoice>,
    /// The guest's operating system.
    pub guest: Option<GuestOs>,
    /// What answers in the guest.
    pub agent: Option<AgentKind>,
    /// The container's image.
    pub image: Option<String>,
    /// The agent's port on the host.
    pub agent_port: Option<u16>,
    /// Remote desktop's.
    pub rdp_port: Option<u16>,
    /// The web viewer's.
    pub web_port: Option<u16>,
    /// Processors.
    pub cpus: Option<u32>,
    /// Memory.
    pub ram: Option<String>,
    /// Disk.
    pub disk: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// The time zone.
    pub timezone: Option<String>,
    /// The image's `NETWORK`.
    pub network: Option<String>,
    /// The executable that becomes the agent in a Windows guest.
    pub agent_exe: Option<PathBuf>,
}

/// Reads a password from a file: its text less one line end.
///
/// # Errors
/// When the file cannot be read, is empty, too long or no UTF-8. Nothing of it is shown.
pub fn read_password(path: &Path) -> Result<Secret> {
    /// Windows takes 127 characters; more than this is some other file.
    const MAX: u64 = 1024;
    let bad = |what: &str| Error::new(ErrorKind::Settings, format!("the password file {} {what}", path.display()));
    let mut text = Zeroizing::new(Vec::new());
    let file = fs_err::File::open(path)
        .map_err(|error| Error::new(ErrorKind::File, "could not read the password").with_source(error))?;
    file.take(MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| Error::new(ErrorKind::File, "could not read the password").with_source(error))?;
    if text.len() as u64 > MAX {
        return Err(bad("is longer than a password can be"));
    }
    let text = std::str::from_utf8(&text).map_err(|_| bad("is not UTF-8 text"))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    if text.is_empty() {
        return Err(bad("is empty"));
    }
    Ok(Secret::new(text.to_owned()))
}
