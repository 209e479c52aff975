//! What only the kernel's own interface tells, in one call for the whole system and to every account.
//!
//! Implementation note: the answers are read as bytes, at the offsets that they have had since Windows 7, on Wine too: so
//! a shorter answer is something that is not known, and nothing worse.
//!
//! UNSAFETY: the call takes pointers. Each points at a value that lives across it, as long as is said.
#![expect(unsafe_code, reason = "the kernel's own interface has no safe form")]

use std::io;

use windows_sys::{
    Wdk::System::{
        SystemInformation::{
            NtQuerySystemInformation, SYSTEM_INFORMATION_CLASS, SystemProcessInformation,
            SystemProcessorPerformanceInformation, SystemTimeOfDayInformation,
        },
        SystemServices::RtlGetVersion,
    },
    Win32::{
        Foundation::{NTSTATUS, STATUS_INFO_LENGTH_MISMATCH},
        System::SystemInformation::OSVERSIONINFOW,
    },
};

// the offsets below
const _: () = assert!(size_of::<usize>() == 8, "a system of 64 bits");

/// Between 1601, from which the system counts, and 1970, in its units of 100 ns.
const TO_1970: i64 = 116_444_736_000_000_000;

/// A table of all processes and threads may take so much, and no more is asked for.
const MOST: usize = 64 * 1024 * 1024;

/// Nanoseconds since 1970 of a time that the system counts in 100 ns since 1601.
pub(super) fn unix_ns(ticks: u64) -> Option<i64> {
    i64::try_from(ticks).ok()?.checked_sub(TO_1970)?.checked_mul(100)
}

/// The time in the system's own count of nanoseconds since 1970.
pub(super) fn ticks_of(unix_ns: i64) -> Option<u64> {
    u64::try_from(unix_ns.div_euclid(100).checked_add(TO_1970)?).ok()
}

/// An answer, in whole words so that it is aligned.
pub(super) struct Answer {
    words: Vec<u64>,
    len: usize,
}

impl Answer {
    /// Where it lies: pointers in it are into it.
    pub(super) fn base(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the words are there, zeroed or written by the system, and `len` is no more than they take.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

/// What failed, as an error.
pub(super) fn check(status: NTSTATUS) -> io::Result<()> {
    if status >= 0 { Ok(()) } else { Err(io::Error::other(format!("the kernel says {status:#010x}"))) }
}

fn ask(class: SYSTEM_INFORMATION_CLASS, expected: usize) -> io::Result<Answer> {
    let mut words = vec![0_u64; expected.div_ceil(8)];
    loop {
        let size = words.len() * 8;
        let mut len = 0;
        // SAFETY: the buffer is as long as is said, and the place is of its type.
        let status = unsafe {
            NtQuerySystemInformation(class, words.as_mut_ptr().cast(), u32::try_from(size).unwrap_or(0), &raw mut len)
        };
        let len = usize::try_from(len).unwrap_or(0);
        if status != STATUS_INFO_LENGTH_MISMATCH {
            check(status)?;
            return Ok(Answer { words, len: len.min(size) });
        }
        // it grows while it is asked for
        let next = len.max(size).saturating_mul(5) / 4;
        if next > MOST {
            return Err(io::Error::other("the kernel's table is too long"));
        }
        words = vec![0; next.div_ceil(8)];
    }
}

/// The table of all processes and their threads.
pub(super) fn process_table() -> io::Result<Answer> {
    ask(SystemProcessInformation, 512 * 1024)
}

/// When the system was started, by its own clock, in nanoseconds since 1970.
pub(super) fn boot_time() -> Option<i64> {
    let answer = ask(SystemTimeOfDayInformation, 48).ok()?;
    unix_ns(number(answer.bytes(), 0)?)
}

/// Processor time of all processors in interrupts, and in what those leave for later, in units of 100 ns; both are part of
/// the time in the kernel.
pub(super) fn interrupt_time() -> Option<(u64, u64)> {
    /// Of one processor: idle, kernel, user, later, interrupt, and a count.
    const RECORD: usize = 48;
    let answer = ask(SystemProcessorPerformanceInformation, RECORD * 256).ok()?;
    let mut sum = (0_u64, 0_u64);
    for record in answer.bytes().chunks_exact(RECORD) {
        sum.0 = sum.0.saturating_add(number(record, 32)?);
        sum.1 = sum.1.saturating_add(number(record, 24)?);
    }
    Some(sum)
}

/// The version: major, minor and build.
pub(super) fn version() -> (u32, u32, u32) {
    let mut version = OSVERSIONINFOW {
        dwOSVersionInfoSize: u32::try_from(size_of::<OSVERSIONINFOW>()).unwrap_or(0),
        ..OSVERSIONINFOW::default()
    };
    // SAFETY: the structure says its own size. Unlike its twin in Win32 this call tells everybody the truth.
    unsafe { RtlGetVersion(&raw mut version) };
    (version.dwMajorVersion, version.dwMinorVersion, version.dwBuildNumber)
}

/// Eight bytes as a number.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Four bytes as a number.
pub(super) fn small_number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Characters of 16 bits as text.
pub(super) fn text(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    String::from_utf16_lossy(&units)
}

/// What stands before the first zero.
pub(super) fn until_zero(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// Text for a call, with a zero behind it.
pub(super) fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().filter(|unit| *unit != 0).chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        assert_eq!(unix_ns(116_444_736_000_000_000), Some(0));
        assert_eq!(unix_ns(0), None, "1601 is before what is counted in nanoseconds");
        assert_eq!(ticks_of(0), Some(116_444_736_000_000_000));
        assert_eq!(unix_ns(ticks_of(1_795_975_286_123_456_700).unwrap()), Some(1_795_975_286_123_456_700));
        assert_eq!(unix_ns(u64::MAX), None);
    }

    #[test]
    fn the_system_answers() {
        let (major, _, build) = version();
        assert!(major >= 10 && build >= 1000, "{major} {build}");
        let boot = boot_time().unwrap();
        let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
        assert!(boot > 0 && boot < now, "{boot} {now}");
        assert!(process_table().unwrap().bytes().len() > 256);
        assert!(interrupt_time().is_some());
    }
}
