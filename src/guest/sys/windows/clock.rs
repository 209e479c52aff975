//! The system's clocks, and setting the one that may jump.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; a
//! handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "clocks and rights have no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    ptr::null_mut,
    time::Duration,
};

use jiff::Timestamp;
use windows_sys::Win32::{
    Foundation::{ERROR_NOT_ALL_ASSIGNED, FILETIME, LUID, SYSTEMTIME},
    Security::{
        AdjustTokenPrivileges, GetTokenInformation, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_PRIVILEGE_ENABLED,
        SE_SYSTEMTIME_NAME, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES, TOKEN_QUERY, TokenPrivileges,
    },
    System::{
        Performance::{QueryPerformanceCounter, QueryPerformanceFrequency},
        SystemInformation::{GetSystemTimePreciseAsFileTime, SetSystemTime},
        Threading::{GetCurrentProcess, OpenProcessToken},
        Time::{DYNAMIC_TIME_ZONE_INFORMATION, FileTimeToSystemTime, GetDynamicTimeZoneInformation},
        WindowsProgramming::QueryUnbiasedInterruptTime,
    },
};

use super::{
    nt::{small_number, ticks_of, unix_ns, until_zero},
    process_table::ticks,
};
use crate::protocol::{GuestTime, TimeSet, TimeZone};

/// What the system says where summer time is in force.
const IN_SUMMER: u32 = 2;

/// What the system says where it knows no zone.
const NO_ZONE: u32 = u32::MAX;

/// The finest step that the clock can be set by.
const MILLISECOND: i64 = 1_000_000;

/// Since the system's start, its sleep included.
pub(super) fn since_boot() -> Duration {
    let (mut count, mut per_second) = (0, 0);
    // SAFETY: the places are of their type; on every system since Windows XP both calls succeed.
    unsafe {
        QueryPerformanceCounter(&raw mut count);
        QueryPerformanceFrequency(&raw mut per_second);
    }
    let (count, per_second) = (u128::try_from(count).unwrap_or(0), u128::try_from(per_second).unwrap_or(1).max(1));
    Duration::from_nanos(u64::try_from(count * 1_000_000_000 / per_second).unwrap_or(u64::MAX))
}

/// Since the system's start, its sleep not included.
fn awake() -> Duration {
    let mut time = 0;
    // SAFETY: the place is of its type.
    unsafe { QueryUnbiasedInterruptTime(&raw mut time) };
    Duration::from_nanos(time.saturating_mul(100))
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    let mut time = FILETIME::default();
    // SAFETY: the place is of its type.
    unsafe { GetSystemTimePreciseAsFileTime(&raw mut time) };
    unix_ns(ticks(time)).unwrap_or(0)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the clocks.
pub(in crate::guest) fn time() -> GuestTime {
    let (timezone, may_set) = (timezone(), may_set());
    // last, and next to each other
    let (now, monotonic, boot) = (now(), awake(), since_boot());
    let utc = Timestamp::from_nanosecond(now.into()).map_or_else(|_| String::new(), |time| time.to_string());
    GuestTime {
        unix_ns: now,
        utc,
        monotonic_ns: nanoseconds(monotonic),
        boot_ns: nanoseconds(boot),
        timezone,
        // only its time service knows, which may not run
        ntp_synchronized: None,
        may_set,
    }
}

/// What the clock is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Step {
    /// This time, in nanoseconds since 1970.
    To(i64),
    /// So many nanoseconds later than it is, or earlier.
    By(i64),
}

/// Steps the clock to a time within `bounds`, to the millisecond.
///
/// # Errors
/// `PermissionDenied` without the right to; `InvalidInput` for a time that is out of bounds or that no clock takes.
pub(in crate::guest) fn step_time(step: Step, bounds: std::ops::Range<i64>) -> io::Result<TimeSet> {
    let (before, started) = (now(), since_boot());
    let target = match step {
        Step::To(time) => Some(time),
        Step::By(offset) => before.checked_add(offset),
    };
    let target = target.filter(|time| bounds.contains(time)).ok_or(io::ErrorKind::InvalidInput)?;
    let rounded = target.checked_add(MILLISECOND / 2).ok_or(io::ErrorKind::InvalidInput)?;
    let target = ticks_of(rounded - rounded.rem_euclid(MILLISECOND)).ok_or(io::ErrorKind::InvalidInput)?;
    take_right()?;
    set(target)?;
    let after = now();
    // what would have passed all the same is no step
    let passed = i64::try_from((since_boot().saturating_sub(started)).as_nanos()).unwrap_or(0);
    Ok(TimeSet { before_unix_ns: before, after_unix_ns: after, step_ns: after - before - passed })
}

fn set(ticks: u64) -> io::Result<()> {
    let time = FILETIME { dwLowDateTime: ticks as u32, dwHighDateTime: (ticks >> 32) as u32 };
    let mut parts = SYSTEMTIME::default();
    // SAFETY: both are of their types.
    if unsafe { FileTimeToSystemTime(&raw const time, &raw mut parts) } == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is of its type.
    if unsafe { SetSystemTime(&raw const parts) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn own_token(access: u32) -> io::Result<OwnedHandle> {
    let mut token = null_mut();
    // SAFETY: the pseudo handle of this process needs no closing; the place is one for a handle.
    if unsafe { OpenProcessToken(GetCurrentProcess(), access, &raw mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(token) })
}

/// The right to set the clock, by its number.
fn right() -> io::Result<LUID> {
    let mut right = LUID::default();
    // SAFETY: the name ends with a zero, and the place is of its type.
    if unsafe { LookupPrivilegeValueW(std::ptr::null(), SE_SYSTEMTIME_NAME, &raw mut right) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(right)
}

/// Whether this account has the right, in force or not.
fn may_set() -> bool {
    let has = || -> io::Result<bool> {
        let (token, right) = (own_token(TOKEN_QUERY)?, right()?);
        // there are fewer than fifty rights, of twelve bytes each
        let (mut words, mut len) = ([0_u64; 256], 0);
        let size = u32::try_from(size_of_val(&words)).unwrap_or(0);
        // SAFETY: the buffer is as long as is said.
        let told = unsafe {
            GetTokenInformation(token.as_raw_handle(), TokenPrivileges, words.as_mut_ptr().cast(), size, &raw mut len)
        };
        if told == 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = small_number(&bytes, 0).unwrap_or(0) as usize;
        Ok(bytes[4..].chunks_exact(12).take(count).any(|entry| {
            small_number(entry, 0) == Some(right.LowPart)
                && small_number(entry, 4).map(u32::cast_signed) == Some(right.HighPart)
        }))
    };
    has().unwrap_or(false)
}

/// Puts the right to set the clock in force.
fn take_right() -> io::Result<()> {
    let token = own_token(TOKEN_QUERY | TOKEN_ADJUST_PRIVILEGES)?;
    let wanted = TOKEN_PRIVILEGES {
        PrivilegeCount: 1,
        Privileges: [LUID_AND_ATTRIBUTES { Luid: right()?, Attributes: SE_PRIVILEGE_ENABLED }],
    };
    // SAFETY: the handle is open across the call, and the structure has the one entry that it says.
    let adjusted =
        unsafe { AdjustTokenPrivileges(token.as_raw_handle(), 0, &raw const wanted, 0, null_mut(), null_mut()) };
    // success is said also where it was not done
    let error = io::Error::last_os_error();
    if adjusted == 0 {
        return Err(error);
    }
    if error.raw_os_error() == Some(ERROR_NOT_ALL_ASSIGNED.cast_signed()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn timezone() -> TimeZone {
    let mut zone = DYNAMIC_TIME_ZONE_INFORMATION::default();
    // SAFETY: the place is of its type.
    let season = unsafe { GetDynamicTimeZoneInformation(&raw mut zone) };
    if season == NO_ZONE {
        return TimeZone { name: None, utc_offset_sec: 0 };
    }
    let more = if season == IN_SUMMER { zone.DaylightBias } else { zone.StandardBias };
    TimeZone {
        name: Some(until_zero(&zone.TimeZoneKeyName)).filter(|name| !name.is_empty()),
        utc_offset_sec: zone.Bias.saturating_add(more).saturating_mul(-60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_read() {
        let (before, seen, after) = (Timestamp::now(), time(), Timestamp::now());
        // the other opinion is coarser
        let (earliest, latest) = (before.as_nanosecond() - 20_000_000, after.as_nanosecond() + 20_000_000);
        assert!((earliest..=latest).contains(&seen.unix_ns.into()), "{seen:?}");
        assert_eq!(seen.utc.parse::<Timestamp>().unwrap().as_nanosecond(), i128::from(seen.unix_ns));
        let again = time();
        assert!(again.monotonic_ns >= seen.monotonic_ns && again.boot_ns > seen.boot_ns);
        assert!(seen.timezone.utc_offset_sec.abs() < 86_400);
    }

    // nothing here may set the clock of the machine that the tests run on: bounds that hold no time see to it
    #[test]
    fn a_time_out_of_bounds_sets_nothing() {
        for step in [Step::To(0), Step::To(i64::MAX), Step::By(i64::MAX), Step::By(i64::MIN), Step::By(1)] {
            assert_eq!(step_time(step, 0..0).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{step:?}");
        }
    }
}
