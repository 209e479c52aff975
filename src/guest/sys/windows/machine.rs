//! What the machine is, and how busy.
//!
//! UNSAFETY: Win32 takes pointers. Each that is given here points at a value that lives across the call, as long as is said.
#![expect(unsafe_code, reason = "none of these calls has a safe form")]

use std::io;

use jiff::Timestamp;
use windows_sys::Win32::{
    Foundation::FILETIME,
    System::{
        ProcessStatus::{
            K32GetPerformanceInfo, K32GetProcessMemoryInfo, PERFORMANCE_INFORMATION, PROCESS_MEMORY_COUNTERS,
        },
        SystemInformation::{
            ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetTickCount64, GlobalMemoryStatusEx, MEMORYSTATUSEX,
        },
        Threading::{
            ALL_PROCESSOR_GROUPS, GetActiveProcessorCount, GetCurrentProcess, GetProcessHandleCount, GetSystemTimes,
        },
    },
};

use super::{
    clock, disks, network, nt, process_list,
    process_table::ticks,
    registry::{Hive, Key},
    time_text::now,
    users,
};
use crate::protocol::{AgentMetrics, CpuSeconds, DiskInfo, DiskSpace, MemoryBytes, Metrics, SystemInfo};

/// From this build on it is Windows 11, whose registry goes on saying 10.
const FIRST_OF_11: u32 = 22_000;

/// Looks at what the guest is. It blocks.
///
/// # Errors
/// When the system does not tell of its memory.
pub(in crate::guest) fn system_info() -> io::Result<SystemInfo> {
    let memory = memory()?;
    let windows = Key::open(Hive::Machine, r"SOFTWARE\Microsoft\Windows NT\CurrentVersion").ok();
    let value = |name| windows.as_ref().and_then(|key| key.text("", name));
    let (major, minor, build) = nt::version();
    let revision = windows.as_ref().and_then(|key| key.number("", "UBR"));
    let kernel = format!("{major}.{minor}.{build}");
    let processor = Key::open(Hive::Machine, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0").ok();
    let uptime_ms = uptime_ms();
    let booted = nt::boot_time().and_then(|time| Timestamp::from_second(time.div_euclid(1_000_000_000)).ok());
    Ok(SystemInfo {
        taken_at: now(),
        hostname: hostname(),
        os_name: product(value("ProductName"), build),
        os_version: value("DisplayVersion").or_else(|| value("ReleaseId")),
        kernel: Some(revision.map_or_else(|| kernel.clone(), |revision| format!("{kernel}.{revision}"))),
        arch: std::env::consts::ARCH.to_owned(),
        cpu_model: processor
            .and_then(|key| key.text("", "ProcessorNameString"))
            .map(|name| name.split_whitespace().collect::<Vec<_>>().join(" ")),
        cpus: cpus(),
        memory_bytes: memory.total,
        swap_bytes: memory.swap_total,
        disks: disks::disks(),
        booted_at: booted.map(|time| time.to_string()),
        uptime_ms,
        users: users::logged_in(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        packages: None,
        packages_error: None,
    })
}

/// The name as people say it.
fn product(name: Option<String>, build: u32) -> String {
    let name = name.unwrap_or_else(|| "Windows".to_owned());
    if build >= FIRST_OF_11 { name.replacen("Windows 10", "Windows 11", 1) } else { name }
}

fn hostname() -> String {
    // the longest name has 63 characters
    let mut buffer = [0_u16; 256];
    let mut len = 256;
    // SAFETY: the buffer is as long as is said.
    let told = unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, buffer.as_mut_ptr(), &raw mut len) };
    if told == 0 { String::new() } else { nt::until_zero(&buffer) }
}

/// Processors.
pub(super) fn cpus() -> u32 {
    // SAFETY: it takes no pointer.
    let of_all_groups = unsafe { GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) };
    // Wine knows of one group, and not always how many are in it
    let of_own = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    of_all_groups.max(of_own)
}

fn uptime_ms() -> u64 {
    // SAFETY: it takes nothing.
    unsafe { GetTickCount64() }
}

/// Memory, and what of the page files goes beyond it.
pub(super) fn memory() -> io::Result<MemoryBytes> {
    let mut status = MEMORYSTATUSEX {
        dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or(0),
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: the structure says its own size.
    if unsafe { GlobalMemoryStatusEx(&raw mut status) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let swap_total = status.ullTotalPageFile.saturating_sub(status.ullTotalPhys);
    let swap_free = status.ullAvailPageFile.saturating_sub(status.ullAvailPhys).min(swap_total);
    Ok(MemoryBytes {
        total: status.ullTotalPhys,
        // what only keeps contents of files counts as free here: the system does not tell everybody how much that is
        free: status.ullAvailPhys,
        available: status.ullAvailPhys,
        buffers: 0,
        cached: cached(),
        swap_total,
        swap_free,
    })
}

fn cached() -> u64 {
    let mut info = PERFORMANCE_INFORMATION::default();
    let size = u32::try_from(size_of::<PERFORMANCE_INFORMATION>()).unwrap_or(0);
    info.cb = size;
    // SAFETY: the structure is of the size that is said.
    if unsafe { K32GetPerformanceInfo(&raw mut info, size) } == 0 {
        return 0;
    }
    (info.SystemCache as u64).saturating_mul(info.PageSize as u64)
}

fn cpu_seconds() -> CpuSeconds {
    let [mut idle, mut kernel, mut user] = [FILETIME::default(); 3];
    // SAFETY: the places are of their type.
    if unsafe { GetSystemTimes(&raw mut idle, &raw mut kernel, &raw mut user) } == 0 {
        return CpuSeconds::default();
    }
    let (irq, softirq) = nt::interrupt_time().unwrap_or_default();
    let seconds = |ticks: u64| ticks as f64 / 1e7;
    CpuSeconds {
        user: seconds(ticks(user)),
        // being idle counts as being in the kernel, and so do interrupts
        system: seconds(ticks(kernel).saturating_sub(ticks(idle)).saturating_sub(irq).saturating_sub(softirq)),
        idle: seconds(ticks(idle)),
        irq: seconds(irq),
        softirq: seconds(softirq),
        ..CpuSeconds::default()
    }
}

/// Looks at how busy the guest is; of the agent only what the system knows of its process. It blocks likewise.
///
/// # Errors
/// When the system does not tell of its memory or its processes.
pub(in crate::guest) fn system_metrics() -> io::Result<Metrics> {
    let processes = process_list::snapshot()?;
    let sum = |of: fn(&process_list::Entry) -> u32| processes.iter().map(|entry| u64::from(of(entry))).sum();
    let space = |disk: DiskInfo| DiskSpace {
        mount: disk.mount,
        size_bytes: disk.size_bytes,
        available_bytes: disk.available_bytes,
    };
    Ok(Metrics {
        taken_at: now(),
        uptime_seconds: clock::since_boot().as_secs_f64(),
        cpus: cpus(),
        cpu_seconds: cpu_seconds(),
        load: None,
        memory: memory()?,
        processes: processes.len() as u64,
        processes_running: sum(|entry| entry.runnable),
        processes_blocked: sum(|entry| entry.paging),
        forks: None,
        disks: disks::disks().into_iter().map(space).collect(),
        disk_io: disks::disk_io(),
        network: network::network(),
        agent: AgentMetrics { resident_bytes: resident_bytes(), open_files: open_handles(), ..AgentMetrics::default() },
    })
}

fn resident_bytes() -> u64 {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = u32::try_from(size_of::<PROCESS_MEMORY_COUNTERS>()).unwrap_or(0);
    counters.cb = size;
    // SAFETY: the structure is of the size that is said, and the pseudo handle of this process needs no closing.
    let told = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
    if told == 0 { 0 } else { counters.WorkingSetSize as u64 }
}

/// Events, threads and keys count too: the system does not tell them from files.
fn open_handles() -> u64 {
    let mut count = 0;
    // SAFETY: the place is of its type, and the pseudo handle of this process needs no closing.
    let told = unsafe { GetProcessHandleCount(GetCurrentProcess(), &raw mut count) };
    if told == 0 { 0 } else { count.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_seen() {
        let info = system_info().unwrap();
        assert!(info.cpus >= 1 && info.memory_bytes > 1 << 20 && info.uptime_ms > 0, "{info:?}");
        assert!(!info.hostname.is_empty() && info.os_name.starts_with("Windows"), "{info:?}");
        assert!(info.kernel.is_some_and(|kernel| kernel.starts_with("10.0.")));
        assert!(info.disks.iter().any(|disk| disk.mount == r"C:\"));
    }

    #[test]
    fn counts_go_up() {
        let before = system_metrics().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let now = system_metrics().unwrap();
            let busy = |metrics: &Metrics| metrics.cpu_seconds.user + metrics.cpu_seconds.system;
            assert!(now.uptime_seconds >= before.uptime_seconds);
            if busy(&now) > busy(&before) {
                break;
            }
            assert!(std::time::Instant::now() < end, "{before:?} {now:?}");
        }
        // not everybody counts handles: Wine does not
        assert!(before.agent.resident_bytes > 100_000, "{:?}", before.agent);
        assert!(before.memory.available <= before.memory.total && before.processes >= 1);
    }

    #[test]
    fn the_product_has_its_name() {
        let ten = || Some("Windows 10 Pro".to_owned());
        assert_eq!(product(ten(), 19_045), "Windows 10 Pro");
        assert_eq!(product(ten(), 26_100), "Windows 11 Pro");
        assert_eq!(product(Some("Windows Server 2025".to_owned()), 26_100), "Windows Server 2025");
        assert_eq!(product(None, 1), "Windows");
    }
}
