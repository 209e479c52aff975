//! `/system/info`: what the guest is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file system of the guest that lies on a disk of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskInfo {
    /// Where it is mounted; of several places the shortest.
    pub mount: String,
    /// The device, as the system names it.
    #[serde(default)]
    pub device: String,
    /// The file system's kind.
    #[serde(default)]
    pub filesystem: String,
    /// Bytes in all.
    pub size_bytes: u64,
    /// Bytes that an account without special rights can still write.
    pub available_bytes: u64,
}

/// Somebody who is logged in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// The account.
    pub user: String,
    /// The terminal or seat.
    #[serde(default)]
    pub terminal: Option<String>,
    /// Where from, where it is from elsewhere.
    #[serde(default)]
    pub from: Option<String>,
    /// Since when, RFC 3339.
    #[serde(default)]
    pub since: Option<String>,
}

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    #[serde(default)]
    pub arch: Option<String>,
}

/// `GET /system/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemInfo {
    /// When it was looked at, RFC 3339.
    pub taken_at: String,
    /// The guest's own name.
    pub hostname: String,
    /// The operating system's name, as people say it.
    pub os_name: String,
    /// Its version.
    #[serde(default)]
    pub os_version: Option<String>,
    /// The kernel's version.
    #[serde(default)]
    pub kernel: Option<String>,
    /// `x86_64`, `aarch64`, …
    pub arch: String,
    /// What the processor calls itself.
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// Processors.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// By place.
    #[serde(default)]
    pub disks: Vec<DiskInfo>,
    /// When the guest was started by its own clock, RFC 3339.
    #[serde(default)]
    pub booted_at: Option<String>,
    /// Milliseconds since then, those asleep included.
    pub uptime_ms: u64,
    /// Who is logged in.
    #[serde(default)]
    pub users: Vec<LoggedIn>,
    /// The agent's version.
    pub agent_version: String,
    /// With `packages=1`: what is installed; null where the guest has no list of it that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Vec<Package>>,
    /// With `packages=1`: why there is no list, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages_error: Option<String>,
}
