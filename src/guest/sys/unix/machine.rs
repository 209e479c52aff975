//! The machine and its system at one moment, out of `/proc`, `/etc` and the file systems.

use std::{collections::BTreeMap, io, path::Path};

use jiff::Timestamp;

use super::{
    machine_text::{self, MOST_LISTED, Mount, Stat},
    proc_folder::pids,
    proc_text,
    processes::now,
    users,
};
use crate::protocol::{AgentMetrics, DiskInfo, DiskSpace, Metrics, SystemInfo};

/// Looks at what the guest is. It blocks, and a disk that is dead may hold it up.
///
/// # Errors
/// When the system has no `/proc` to be read.
pub(in crate::guest) fn system_info() -> io::Result<SystemInfo> {
    let (boot, cpus) = proc_text::boot_and_cpus(&fs_err::read("/proc/stat")?);
    let memory = machine_text::memory(&fs_err::read("/proc/meminfo")?);
    let release = ["/etc/os-release", "/usr/lib/os-release"].into_iter().find_map(read).unwrap_or_default();
    let value = |key| machine_text::os_release(&release, key);
    let kernel = read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
    Ok(SystemInfo {
        taken_at: now(),
        hostname: read("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        os_name: value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_else(|| std::env::consts::OS.to_owned()),
        os_version: value("VERSION_ID"),
        kernel: kernel.filter(|text| !text.is_empty()),
        arch: std::env::consts::ARCH.to_owned(),
        cpu_model: machine_text::cpu_model(&fs_err::read("/proc/cpuinfo").unwrap_or_default()),
        cpus,
        memory_bytes: memory.total,
        swap_bytes: memory.swap_total,
        disks: disks(),
        booted_at: boot.and_then(|boot| Timestamp::from_second(boot).ok()).map(|time| time.to_string()),
        uptime_ms: super::clock::since_boot().as_millis().try_into().unwrap_or(u64::MAX),
        users: users::logged_in(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        packages: None,
        packages_error: None,
    })
}

/// Looks at how busy the guest is; of the agent only what the system knows of its process. It blocks likewise.
///
/// # Errors
/// When the system has no `/proc` to be read.
pub(in crate::guest) fn system_metrics() -> io::Result<Metrics> {
    let stat_text = fs_err::read("/proc/stat")?;
    let stat = Stat::parse(&stat_text, rustix::param::clock_ticks_per_second());
    let text = |path: &str| fs_err::read(path).unwrap_or_default();
    // guests without /sys tell of every partition
    let block = Path::new("/sys/block");
    let knows_disks = block.is_dir();
    let is_whole_disk = |name: &str| !knows_disks || block.join(name.replace('/', "!")).exists();
    let space = |disk: DiskInfo| DiskSpace {
        mount: disk.mount,
        size_bytes: disk.size_bytes,
        available_bytes: disk.available_bytes,
    };
    Ok(Metrics {
        taken_at: now(),
        uptime_seconds: super::clock::since_boot().as_secs_f64(),
        cpus: proc_text::boot_and_cpus(&stat_text).1,
        cpu_seconds: stat.cpu_seconds,
        load: read("/proc/loadavg").as_deref().and_then(machine_text::load),
        memory: machine_text::memory(&text("/proc/meminfo")),
        processes: pids()?.len() as u64,
        processes_running: stat.running,
        processes_blocked: stat.blocked,
        forks: Some(stat.forks),
        disks: disks().into_iter().map(space).collect(),
        disk_io: machine_text::disk_io(&text("/proc/diskstats"), is_whole_disk),
        network: machine_text::network(&text("/proc/net/dev")),
        agent: AgentMetrics { resident_bytes: resident_bytes(), open_files: open_files(), ..AgentMetrics::default() },
    })
}

fn read(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs_err::read(path).ok()?).into_owned())
}

/// The file systems on disks, by place: each once.
fn disks() -> Vec<DiskInfo> {
    let mounts = read("/proc/self/mountinfo").unwrap_or_default();
    let mut by_number: BTreeMap<String, Mount> = BTreeMap::new();
    for mount in mounts.lines().filter_map(Mount::parse).filter(Mount::is_on_a_disk) {
        let is_better = by_number.get(&mount.number).is_none_or(|known| {
            // what is mounted over something else at the same place hides it
            (mount.place.len(), &mount.place) <= (known.place.len(), &known.place)
        });
        if is_better && Path::new(&mount.place).is_dir() {
            by_number.insert(mount.number.clone(), mount);
        }
    }
    let disk = |mount: Mount| {
        let stat = rustix::fs::statvfs(&*mount.place).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        (stat.f_blocks > 0).then(|| DiskInfo {
            size_bytes: bytes(stat.f_blocks),
            available_bytes: bytes(stat.f_bavail),
            mount: mount.place,
            device: mount.source,
            filesystem: mount.kind,
        })
    };
    let mut disks: Vec<_> = by_number.into_values().filter_map(disk).take(MOST_LISTED).collect();
    disks.sort_by(|a, b| a.mount.cmp(&b.mount));
    disks.dedup_by(|a, b| a.mount == b.mount);
    disks
}

fn resident_bytes() -> u64 {
    let status = proc_text::Status::parse(&fs_err::read("/proc/self/status").unwrap_or_default());
    status.memory_bytes.unwrap_or(0)
}

fn open_files() -> u64 {
    // the look itself holds one
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| (entries.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_seen() {
        let info = system_info().unwrap();
        assert!(info.cpus >= 1 && info.memory_bytes > 1 << 20 && info.uptime_ms > 0, "{info:?}");
        assert!(!info.hostname.is_empty() && !info.os_name.is_empty() && info.kernel.is_some(), "{info:?}");
        let root = info.disks.iter().find(|disk| disk.mount == "/").unwrap();
        assert!(root.size_bytes > 0 && root.available_bytes <= root.size_bytes, "{root:?}");
    }

    #[test]
    fn counts_go_up() {
        let before = system_metrics().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let now = system_metrics().unwrap();
            let busy = |metrics: &Metrics| metrics.cpu_seconds.user + metrics.cpu_seconds.system;
            assert!(now.uptime_seconds >= before.uptime_seconds && now.forks >= before.forks);
            if busy(&now) > busy(&before) {
                break;
            }
            assert!(std::time::Instant::now() < end, "{before:?} {now:?}");
        }
        assert!(before.network.iter().any(|interface| interface.interface == "lo"), "{before:?}");
        assert!(before.agent.resident_bytes > 100_000 && before.agent.open_files >= 3, "{:?}", before.agent);
        assert!(before.memory.available <= before.memory.total && before.processes >= 1);
    }
}
