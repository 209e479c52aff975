//! What this machine lacks for a pod, said before it is missed.

use std::path::Path;

use crate::host::{GuestOs, Machine};

/// One GiB.
const GIB: u64 = 1 << 30;
/// What an installation of Windows takes of the disk: the medium, what is unpacked of it, and the first updates.
const WINDOWS_FIRST: u64 = 32 * GIB;
/// And of a Linux guest.
const LINUX_FIRST: u64 = 8 * GIB;

/// What a machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) has_kvm: bool,
    /// Bytes that this user may still write where the guest's disk is to lie; `None` where that is not known.
    pub(super) free_disk: Option<u64>,
    /// Bytes that programs could still get.
    pub(super) free_memory: Option<u64>,
}

impl Facts {
    /// Of this machine.
    pub(super) fn gather(storage: &Path) -> Self {
        Self {
            has_kvm: Path::new("/dev/kvm").exists(),
            free_disk: storage
                .ancestors()
                .find_map(|folder| rustix::fs::statvfs(folder).ok())
                .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
            free_memory: fs_err::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text)),
        }
    }
}

/// What is lacking. `is_new` tells whether the disk is still to be filled, `runs` whether the pod has its memory.
pub(super) fn warnings(facts: &Facts, machine: &Machine, guest: GuestOs, is_new: bool, runs: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !facts.has_kvm {
        warnings.push(
            "this machine has no /dev/kvm: the guest will be very slow. Turn virtualization on in the firmware, load \
             the module kvm_intel or kvm_amd, or, where this is a virtual machine itself, allow it nested virtualization"
                .to_owned(),
        );
    }
    let first = match guest {
        GuestOs::Windows => WINDOWS_FIRST,
        GuestOs::Linux => LINUX_FIRST,
    };
    let needed = bytes(&machine.disk).map_or(first, |disk| disk.min(first));
    if let Some(free) = facts.free_disk.filter(|free| is_new && *free < needed) {
        warnings.push(format!(
            "only {} are free where the guest's disk will lie, and its installation takes up to {}: free some, or move \
             the pods with PODLINK_HOME",
            shown(free),
            shown(needed)
        ));
    }
    if let (Some(free), Some(ram)) = (facts.free_memory, bytes(&machine.ram))
        && !runs
        && lacks_memory(facts, machine)
    {
        warnings.push(format!(
            "only {} of memory are available and the guest is to have {}: end other programs, or give it less with \
             `--ram`",
            shown(free),
            shown(ram)
        ));
    }
    warnings
}

/// Whether memory is short, unless the pod itself has it.
pub(super) fn lacks_memory(facts: &Facts, machine: &Machine) -> bool {
    matches!((facts.free_memory, bytes(&machine.ram)), (Some(free), Some(ram)) if free < ram)
}

/// `MemAvailable` of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A size as the image takes it: `4G`.
fn bytes(size: &str) -> Option<u64> {
    let unit = match size.chars().next_back()? {
        'M' => 1 << 20,
        'G' => GIB,
        'T' => 1 << 40,
        _ => return None,
    };
    size[..size.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn shown(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::Secret;

    fn machine(ram: &str, disk: &str) -> Machine {
        Machine {
            image: "image".into(),
            cpus: 2,
            ram: ram.into(),
            disk: disk.into(),
            user: "Docker".into(),
            password: Secret::new("x".into()),
            timezone: None,
            network: None,
        }
    }

    #[test]
    fn what_is_lacking_is_said() {
        let plenty = Facts { has_kvm: true, free_disk: Some(500 * GIB), free_memory: Some(64 * GIB) };
        let poor = Facts { has_kvm: false, free_disk: Some(10 * GIB), free_memory: Some(3 * GIB) };
        let unknown = Facts { has_kvm: true, free_disk: None, free_memory: None };
        let pod = machine("4G", "64G");
        let windows = GuestOs::Windows;
        assert!(warnings(&plenty, &pod, windows, true, false).is_empty());
        assert!(warnings(&unknown, &pod, windows, true, false).is_empty());
        let all = warnings(&poor, &pod, windows, true, false);
        for (warning, words) in all.iter().zip([["/dev/kvm", "slow"], ["10.0 GiB", "32.0 GiB"], ["3.0 GiB", "4.0 GiB"]])
        {
            assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
        }
        assert_eq!(all.len(), 3);
        // an installed disk, a running pod, a small disk, another guest
        assert_eq!(warnings(&poor, &pod, windows, false, false).len(), 2);
        assert_eq!(warnings(&poor, &pod, windows, true, true).len(), 2);
        assert_eq!(warnings(&poor, &machine("2G", "9G"), windows, true, false).len(), 1);
        assert_eq!(warnings(&poor, &machine("2G", "64G"), GuestOs::Linux, true, false).len(), 1);
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemFree: 1 kB\n"), None);
        assert_eq!((bytes("512M"), bytes("1T"), bytes("4")), (Some(512 << 20), Some(1 << 40), None));
    }

    #[test]
    fn this_machine_is_looked_at() {
        let facts = Facts::gather(Path::new("/nowhere/at/all"));
        assert!(facts.free_disk.is_some());
        assert!(!cfg!(target_os = "linux") || facts.free_memory.is_some());
    }
}
