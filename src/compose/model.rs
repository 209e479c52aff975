//! What a container needs to know of a pod.

use std::collections::BTreeMap;

use super::Secret;

/// Ports inside the container and the guest; the host's may differ.
pub mod guest_port {
    /// The agent's, always: the host's side is what moves.
    pub const AGENT: u16 = 8765;
    /// Remote desktop; the image forwards it by itself.
    pub const RDP: u16 = 3389;
    /// The image's web viewer, which runs in the container.
    pub const WEB: u16 = 8006;
}

/// The host's ports, all on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPorts {
    /// The agent's.
    pub agent: u16,
    /// Remote desktop, TCP and UDP; `None` for a guest without it.
    pub rdp: Option<u16>,
    /// The web viewer's.
    pub web: u16,
}

/// Whether the engine gives the mounted folders the container's `SELinux` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relabel {
    /// As podman needs it where `SELinux` is on; right because the folders are the pod's own.
    Private,
    /// Leave them as they are.
    No,
}

/// A pod, as it goes into `compose.yaml`.
///
/// Texts stand here as they are meant: quoting and the doubling of `$` are the business of [`render`](super::render).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposePod {
    /// The pod's name; the service and a label.
    pub pod: String,
    /// The compose project; a label, by which its container is found.
    pub project: String,
    /// The image.
    pub image: String,
    /// The image's `VERSION`: which Windows to install. `None` for other guests.
    pub version: Option<String>,
    /// Processors of the guest.
    pub cpus: u32,
    /// Its memory, as the image takes it: `4G`.
    pub ram: String,
    /// Its disk, likewise: `64G`.
    pub disk: String,
    /// The user that the installation makes.
    pub user: String,
    /// That user's password.
    pub password: Secret,
    /// The time zone: `Europe/Vienna`.
    pub timezone: Option<String>,
    /// The image's `NETWORK`, where its own choice does not work.
    pub network: Option<String>,
    /// Where the guest is reached.
    pub ports: HostPorts,
    /// Devices of the host that the container gets.
    pub devices: Vec<String>,
    /// The host's folder that becomes `/oem`.
    pub oem: String,
    /// The host's folder that becomes `/shared`.
    pub shared: String,
    /// The host's folder that becomes `/storage`.
    pub storage: String,
    /// What to do about `SELinux` labels.
    pub relabel: Relabel,
}

impl ComposePod {
    /// The container's environment but for the password, which each form keeps in its own way.
    pub(super) fn environment(&self) -> BTreeMap<&'static str, String> {
        let texts = [
            ("VERSION", self.version.as_ref()),
            ("RAM_SIZE", Some(&self.ram)),
            ("DISK_SIZE", Some(&self.disk)),
            ("USERNAME", Some(&self.user)),
            ("TZ", self.timezone.as_ref()),
            ("NETWORK", self.network.as_ref()),
        ];
        let numbers = [
            ("CPU_CORES", self.cpus.to_string()),
            // the first leg: from the container into the guest. A list separated by commas, blanks break it
            ("USER_PORTS", guest_port::AGENT.to_string()),
        ];
        texts.into_iter().filter_map(|(key, text)| Some((key, text?.clone()))).chain(numbers).collect()
    }

    /// The texts that others chose, each with what it is called in an error.
    pub(super) fn texts(&self) -> [(&'static str, &str); 10] {
        fn or_none(text: Option<&String>) -> &str {
            text.map_or("", String::as_str)
        }
        [
            ("image", &self.image),
            ("ram", &self.ram),
            ("disk", &self.disk),
            ("user", &self.user),
            ("password", self.password.expose()),
            ("timezone", or_none(self.timezone.as_ref())),
            ("network", or_none(self.network.as_ref())),
            ("oem folder's path", &self.oem),
            ("shared folder's path", &self.shared),
            ("storage folder's path", &self.storage),
        ]
    }
}
