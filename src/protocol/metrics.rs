//! `/system/metrics`: how busy the guest and its agent are. All counts go up from the guest's, or the agent's, start.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Seconds of processor time of all processors together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CpuSeconds {
    /// In programs; those of virtual machines of the guest's own included.
    pub user: f64,
    /// In programs of low priority.
    pub nice: f64,
    /// In the kernel.
    pub system: f64,
    /// Idle.
    pub idle: f64,
    /// Idle while something waits for a disk.
    pub iowait: f64,
    /// In interrupts.
    pub irq: f64,
    /// In what interrupts leave for later.
    pub softirq: f64,
    /// Taken by the host for something else.
    pub steal: f64,
}

/// Bytes of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MemoryBytes {
    /// In all.
    pub total: u64,
    /// Used for nothing.
    pub free: u64,
    /// Can be had without swapping.
    pub available: u64,
    /// Used for blocks of disks.
    pub buffers: u64,
    /// Used for contents of files.
    pub cached: u64,
    /// Swap in all.
    pub swap_total: u64,
    /// Swap that is free.
    pub swap_free: u64,
}

/// One file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskSpace {
    /// Where it is mounted.
    pub mount: String,
    /// Bytes in all.
    pub size_bytes: u64,
    /// Bytes that an account without special rights can still write.
    pub available_bytes: u64,
}

/// What went through one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskIo {
    /// The system's name for it.
    pub device: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads that were done.
    pub reads: u64,
    /// Writes that were done.
    pub writes: u64,
    /// Seconds in which something was under way.
    pub busy_seconds: f64,
}

/// What went through one network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkIo {
    /// Its name.
    pub interface: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets that came broken.
    pub receive_errors: u64,
    /// Packets that came and were dropped.
    pub receive_drops: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that could not be sent.
    pub send_errors: u64,
    /// Packets that were to be sent and were dropped.
    pub send_drops: u64,
}

/// Answers by their status, and requests that got none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RequestCounts {
    /// 1xx: upgrades.
    pub informational: u64,
    /// 2xx.
    pub success: u64,
    /// 3xx.
    pub redirect: u64,
    /// 4xx.
    pub client_error: u64,
    /// 5xx.
    pub server_error: u64,
    /// Lost their caller before the answer.
    pub lost: u64,
}

/// How calls ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CallCounts {
    /// Began to run.
    pub started: u64,
    /// Ended with exit code 0.
    pub succeeded: u64,
    /// Ended with another one, signals included.
    pub failed: u64,
    /// Ended by their time-out.
    pub timed_out: u64,
    /// Ended by their caller, or for want of one.
    pub cancelled: u64,
    /// Ended because the agent stops.
    pub stopped: u64,
    /// Could not be started.
    pub spawn_failed: u64,
    /// Got no place or no turn.
    pub refused: u64,
    /// Ended by a fault in the agent.
    pub faulty: u64,
}

/// The agent's own numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AgentMetrics {
    /// Its version.
    pub version: String,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Bytes of memory that it holds (resident set).
    pub resident_bytes: u64,
    /// Files and sockets that it holds open.
    pub open_files: u64,
    /// Answers by their status.
    pub requests: RequestCounts,
    /// Calls since its start.
    pub calls: CallCounts,
    /// Calls that run now.
    pub calls_running: u64,
    /// Calls that wait now.
    pub calls_queued: u64,
    /// Bytes of output that programs wrote.
    pub output_bytes: u64,
    /// Processes that it ended.
    pub killed: u64,
    /// Processes that would not end.
    pub survivors: u64,
    /// Connections that it accepted.
    pub connections: u64,
    /// Connections that are served now.
    pub connections_open: u64,
    /// Requests without the right token.
    pub auth_failures: u64,
}

/// `GET /system/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// When they were taken, RFC 3339.
    pub taken_at: String,
    /// Seconds since the guest's start, by a clock that never jumps; two looks are so far apart.
    pub uptime_seconds: f64,
    /// Processors.
    pub cpus: u32,
    /// Processor time.
    pub cpu_seconds: CpuSeconds,
    /// Programs that run or want to, on average over 1, 5 and 15 minutes; null where the system counts no such thing.
    #[serde(default)]
    pub load: Option<[f64; 3]>,
    /// Memory and swap.
    pub memory: MemoryBytes,
    /// Processes that there are.
    pub processes: u64,
    /// Threads that run or could.
    pub processes_running: u64,
    /// Processes that wait for a disk.
    pub processes_blocked: u64,
    /// Processes and threads that were ever started; null where the system counts no such thing.
    #[serde(default)]
    pub forks: Option<u64>,
    /// By place.
    #[serde(default)]
    pub disks: Vec<DiskSpace>,
    /// By device.
    #[serde(default)]
    pub disk_io: Vec<DiskIo>,
    /// By interface.
    #[serde(default)]
    pub network: Vec<NetworkIo>,
    /// The agent itself.
    #[serde(default)]
    pub agent: AgentMetrics,
}
