//! `/system/processes` and `/system/sockets`: the whole guest at one moment.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One process of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemProcess {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Its name, as the system has it.
    pub name: String,
    /// Its command line; empty where it has none or may not be read.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Its account: a name, or a number that has none.
    #[serde(default)]
    pub user: Option<String>,
    /// One letter, as `ps` has it (R, S, D, T, Z, …); null on Windows.
    #[serde(default)]
    pub state: Option<String>,
    /// When it was started, RFC 3339.
    #[serde(default)]
    pub started_at: Option<String>,
    /// Milliseconds of processor time so far, in user and kernel mode.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Bytes of memory that it holds (resident set).
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its threads.
    #[serde(default)]
    pub threads: u32,
    /// The agent's name for the call that it belongs to, where it belongs to one and that is known.
    #[serde(default)]
    pub process_id: Option<String>,
    /// Names of the signals that it catches; null on Windows.
    #[serde(default)]
    pub signals_caught: Option<Vec<String>>,
    /// Those that it blocks.
    #[serde(default)]
    pub signals_blocked: Option<Vec<String>>,
    /// Those that it ignores.
    #[serde(default)]
    pub signals_ignored: Option<Vec<String>>,
}

/// `GET /system/processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemProcesses {
    /// When it was taken, RFC 3339.
    pub taken_at: String,
    /// Processors of the guest.
    pub cpus: u32,
    /// Bytes of memory of the guest.
    pub memory_bytes: u64,
    /// By number.
    pub processes: Vec<SystemProcess>,
}

/// Which kind of socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SocketProtocol {
    /// TCP, listening.
    Tcp,
    /// UDP, bound.
    Udp,
    /// A kind that this build does not know; never sent.
    #[serde(other)]
    Unknown,
}

/// Who holds a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SocketOwner {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// A socket that others can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemSocket {
    /// Listening TCP, or bound UDP.
    pub protocol: SocketProtocol,
    /// The address that it is bound to, without brackets.
    pub address: String,
    /// The port.
    pub port: u16,
    /// Its account: a name, or a number that has none.
    #[serde(default)]
    pub user: Option<String>,
    /// Who holds it; empty where that may not be read.
    #[serde(default)]
    pub owners: Vec<SocketOwner>,
}

/// `GET /system/sockets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemSockets {
    /// When it was taken, RFC 3339.
    pub taken_at: String,
    /// By protocol, port and address.
    pub sockets: Vec<SystemSocket>,
}
