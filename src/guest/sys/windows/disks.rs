//! File systems on disks, and what went through the disks.
//!
//! UNSAFETY: Win32 takes pointers. Each that is given here points at a value that lives across the call, as long as is said.
#![expect(unsafe_code, reason = "volumes and disks have no safe form")]

use std::{fs::OpenOptions, os::windows::fs::OpenOptionsExt as _, os::windows::io::AsRawHandle as _, ptr::null_mut};

use windows_sys::Win32::{
    Storage::FileSystem::{
        FILE_SHARE_READ, FILE_SHARE_WRITE, GetDiskFreeSpaceExW, GetDriveTypeW, GetLogicalDrives, GetVolumeInformationW,
        QueryDosDeviceW,
    },
    System::{
        Diagnostics::Debug::{SEM_FAILCRITICALERRORS, SetThreadErrorMode},
        IO::DeviceIoControl,
        Ioctl::{DISK_PERFORMANCE, IOCTL_DISK_PERFORMANCE},
        WindowsProgramming::{DRIVE_FIXED, DRIVE_RAMDISK, DRIVE_REMOVABLE},
    },
};

use super::nt::{until_zero, wide};
use crate::protocol::{DiskInfo, DiskIo};

/// Numbers of disks that are tried; they have gaps where one was taken out.
const MOST_DISKS: u32 = 32;

/// Nobody is asked to put a disk in, for as long as the value lives.
struct NoQuestions(u32);

impl NoQuestions {
    fn now() -> Self {
        let mut before = 0;
        // SAFETY: the place is of its type.
        unsafe { SetThreadErrorMode(SEM_FAILCRITICALERRORS, &raw mut before) };
        Self(before)
    }
}

impl Drop for NoQuestions {
    fn drop(&mut self) {
        // SAFETY: a place that is not wanted may be null.
        unsafe { SetThreadErrorMode(self.0, null_mut()) };
    }
}

/// The file systems with a letter of their own, but those of CDs and of the network.
pub(super) fn disks() -> Vec<DiskInfo> {
    let _no_questions = NoQuestions::now();
    // SAFETY: it takes nothing.
    let letters = unsafe { GetLogicalDrives() };
    (0..26_u8).filter(|number| letters >> number & 1 == 1).filter_map(|number| disk((b'A' + number).into())).collect()
}

fn disk(letter: char) -> Option<DiskInfo> {
    let mount = format!("{letter}:\\");
    let root = wide(&mount);
    // SAFETY: the path ends with a zero.
    if ![DRIVE_FIXED, DRIVE_REMOVABLE, DRIVE_RAMDISK].contains(&unsafe { GetDriveTypeW(root.as_ptr()) }) {
        return None;
    }
    let (mut available, mut size) = (0, 0);
    // SAFETY: the path ends with a zero, and the places are of their types.
    let told = unsafe { GetDiskFreeSpaceExW(root.as_ptr(), &raw mut available, &raw mut size, null_mut()) };
    if told == 0 || size == 0 {
        return None; // nothing is in it
    }
    let mut kind = [0_u16; 64];
    // SAFETY: the path ends with a zero, and the buffer is as long as is said; places that are not wanted may be null.
    let named = unsafe {
        GetVolumeInformationW(root.as_ptr(), null_mut(), 0, null_mut(), null_mut(), null_mut(), kind.as_mut_ptr(), 64)
    };
    let (name, mut device) = (wide(&format!("{letter}:")), [0_u16; 512]);
    // SAFETY: the name ends with a zero, and the buffer is as long as is said.
    let has_device = unsafe { QueryDosDeviceW(name.as_ptr(), device.as_mut_ptr(), 512) } > 0;
    Some(DiskInfo {
        mount,
        device: if has_device { until_zero(&device) } else { String::new() },
        filesystem: if named == 0 { String::new() } else { until_zero(&kind) },
        size_bytes: size,
        available_bytes: available,
    })
}

/// What went through each disk; nothing of those that do not count it.
pub(super) fn disk_io() -> Vec<DiskIo> {
    (0..MOST_DISKS).filter_map(of_disk).collect()
}

fn of_disk(number: u32) -> Option<DiskIo> {
    let device = format!("PhysicalDrive{number}");
    // no right at all is needed to ask for this
    let mut options = OpenOptions::new();
    let disk =
        options.access_mode(0).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE).open(format!(r"\\.\{device}")).ok()?;
    let mut counts = DISK_PERFORMANCE::default();
    let (size, mut len) = (u32::try_from(size_of::<DISK_PERFORMANCE>()).ok()?, 0);
    // SAFETY: the handle is open across the call, and the structure is of the size that is said.
    let told = unsafe {
        DeviceIoControl(
            disk.as_raw_handle(),
            IOCTL_DISK_PERFORMANCE,
            null_mut(),
            0,
            (&raw mut counts).cast(),
            size,
            &raw mut len,
            null_mut(),
        )
    };
    if told == 0 || len < size {
        return None;
    }
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Some(DiskIo {
        device,
        read_bytes: count(counts.BytesRead),
        written_bytes: count(counts.BytesWritten),
        reads: counts.ReadCount.into(),
        writes: counts.WriteCount.into(),
        // in units of 100 ns; what was under way side by side counts twice
        busy_seconds: counts.ReadTime.saturating_add(counts.WriteTime) as f64 / 1e7,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_own_disk_is_seen() {
        let disks = disks();
        let system = disks.iter().find(|disk| disk.mount == r"C:\").unwrap();
        assert!(system.size_bytes > 0 && system.available_bytes <= system.size_bytes, "{system:?}");
        // there may be none that count
        assert!(disk_io().len() <= MOST_DISKS as usize);
    }
}
