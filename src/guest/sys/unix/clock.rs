//! The system's clocks, and setting the one that may jump.

use std::{io, time::Duration};

use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::protocol::{GuestTime, TimeSet, TimeZone};

/// The right to set the clock, as a bit of `CapEff` in `/proc/self/status`.
const SYS_TIME: u32 = 25;

/// The clock that counts from the system's start; where the system has none that counts its sleep too, one that does not.
#[cfg(target_os = "linux")]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT: ClockId = ClockId::Monotonic;

/// Since the system's start, its sleep included.
pub(super) fn since_boot() -> Duration {
    duration(clock_gettime(BOOT))
}

/// Reads the clocks.
pub(in crate::guest) fn time() -> GuestTime {
    let timezone = timezone();
    let (ntp_synchronized, may_set) = (ntp_synchronized(), may_set());
    // last, and next to each other
    let (now, monotonic, boot) =
        (clock_gettime(ClockId::Realtime), clock_gettime(ClockId::Monotonic), clock_gettime(BOOT));
    let unix_ns = nanoseconds(now);
    let utc = Timestamp::from_nanosecond(unix_ns.into()).map_or_else(|_| String::new(), |time| time.to_string());
    GuestTime {
        unix_ns,
        utc,
        monotonic_ns: duration(monotonic).as_nanos().try_into().unwrap_or(u64::MAX),
        boot_ns: duration(boot).as_nanos().try_into().unwrap_or(u64::MAX),
        timezone,
        ntp_synchronized,
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

/// Steps the clock to a time within `bounds`.
///
/// # Errors
/// `PermissionDenied` without the right to; `InvalidInput` for a time that is out of bounds or that no clock takes.
pub(in crate::guest) fn step_time(step: Step, bounds: std::ops::Range<i64>) -> io::Result<TimeSet> {
    let before = nanoseconds(clock_gettime(ClockId::Realtime));
    let started = clock_gettime(ClockId::Monotonic);
    let target = match step {
        Step::To(time) => Some(time),
        Step::By(offset) => before.checked_add(offset),
    };
    let target = target.filter(|time| bounds.contains(time)).ok_or(io::ErrorKind::InvalidInput)?;
    set(Timespec { tv_sec: target.div_euclid(NANOS), tv_nsec: nanos_of(target) })?;
    let after = nanoseconds(clock_gettime(ClockId::Realtime));
    // what would have passed all the same is no step
    let passed = nanoseconds(clock_gettime(ClockId::Monotonic)) - nanoseconds(started);
    Ok(TimeSet { before_unix_ns: before, after_unix_ns: after, step_ns: after - before - passed })
}

const NANOS: i64 = 1_000_000_000;

#[cfg_attr(target_pointer_width = "64", expect(clippy::useless_conversion, reason = "narrower elsewhere"))]
fn nanos_of(time: i64) -> rustix::time::Nsecs {
    time.rem_euclid(NANOS).try_into().unwrap_or(0)
}

#[cfg(not(any(target_vendor = "apple", target_os = "redox")))]
fn set(time: Timespec) -> io::Result<()> {
    Ok(rustix::time::clock_settime(ClockId::Realtime, time)?)
}

#[cfg(any(target_vendor = "apple", target_os = "redox"))]
fn set(_: Timespec) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn nanoseconds(time: Timespec) -> i64 {
    let nanos = i128::from(time.tv_sec) * i128::from(NANOS) + i128::from(time.tv_nsec);
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn duration(time: Timespec) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds(time)).unwrap_or(0))
}

fn timezone() -> TimeZone {
    let of_environment = std::env::var("TZ").ok().map(|name| name.trim_start_matches(':').to_owned());
    let name = of_environment
        .filter(|name| !name.is_empty() && !name.starts_with('/'))
        .or_else(|| {
            let target = std::fs::read_link("/etc/localtime").ok()?;
            Some(target.to_str()?.split_once("zoneinfo/")?.1.to_owned())
        })
        .or_else(|| {
            Some(fs_err::read_to_string("/etc/timezone").ok()?.trim().to_owned()).filter(|name| !name.is_empty())
        });
    TimeZone { name, utc_offset_sec: utc_offset() }
}

/// By how many seconds local time is ahead of UTC, as the C library has it.
#[expect(unsafe_code, reason = "only the C library reads the system's time zone")]
fn utc_offset() -> i32 {
    let now = clock_gettime(ClockId::Realtime).tv_sec as libc::time_t;
    // SAFETY: all zeros are a `tm`, whose fields are numbers and one pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point at values of their types that live across the call, which keeps neither.
    if unsafe { libc::localtime_r(&raw const now, &raw mut local) }.is_null() {
        return 0;
    }
    i32::try_from(local.tm_gmtoff).unwrap_or(0)
}

/// Whether something has told the kernel lately that its clock is right.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the kernel's own answer, which has no other way out")]
fn ntp_synchronized() -> Option<bool> {
    // SAFETY: all zeros are a `timex`, whose fields are numbers; with no modes set it is a question that changes nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: it points at a value of its type that lives across the call, which does not keep it.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    (answer >= 0).then_some(answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
}

#[cfg(not(target_os = "linux"))]
fn ntp_synchronized() -> Option<bool> {
    None
}

/// The right to, in the system's own space of users: a container's root has it in name alone.
fn may_set() -> bool {
    let Ok(status) = fs_err::read_to_string("/proc/self/status") else {
        return rustix::process::geteuid().is_root();
    };
    let rights = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let users = fs_err::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_everybody = users.split_ascii_whitespace().eq(["0", "0", "4294967295"]) || users.is_empty();
    rights.is_some_and(|rights| rights >> SYS_TIME & 1 == 1) && is_everybody
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_read() {
        let (before, seen, after) = (Timestamp::now(), time(), Timestamp::now());
        assert!((before.as_nanosecond()..=after.as_nanosecond()).contains(&seen.unix_ns.into()), "{seen:?}");
        assert_eq!(seen.utc.parse::<Timestamp>().unwrap().as_nanosecond(), i128::from(seen.unix_ns));
        let again = time();
        assert!(again.monotonic_ns > seen.monotonic_ns && again.boot_ns > seen.boot_ns);
        assert!(seen.timezone.utc_offset_sec.abs() < 86_400);
        #[expect(clippy::disallowed_methods, reason = "the other opinion")]
        let said = std::process::Command::new("date").arg("+%z").output().unwrap().stdout;
        let said: i32 = String::from_utf8_lossy(&said).trim().parse().unwrap();
        assert_eq!(seen.timezone.utc_offset_sec, said / 100 * 3600 + said % 100 * 60);
    }

    // nothing here may set the clock of the machine that the tests run on: bounds that hold no time see to it
    #[test]
    fn a_time_out_of_bounds_sets_nothing() {
        for step in [Step::To(0), Step::To(i64::MAX), Step::By(i64::MAX), Step::By(i64::MIN), Step::By(1)] {
            assert_eq!(step_time(step, 0..0).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{step:?}");
        }
    }
}
