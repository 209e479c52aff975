//! Signals by name and by number.
//!
//! UNSAFETY: rustix cannot know which real-time signals the C library keeps for itself; this table does.
#![expect(unsafe_code, reason = "a real-time signal has no safe constructor")]

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The signals that have names of their own, as `kill -l` writes them; the first of a number is its name.
const NAMES: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    #[cfg(all(target_os = "linux", not(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64"))))]
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    #[cfg(target_os = "linux")]
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
    // other names of the same numbers
    ("IOT", libc::SIGABRT),
    ("CLD", libc::SIGCHLD),
    ("POLL", libc::SIGIO),
];

/// The first and the last real-time signal as programs count them; the C library keeps those between for its threads.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// A signal that can be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) struct SignalNumber(i32);

impl SignalNumber {
    /// For sending it.
    pub(super) const fn raw(self) -> rustix::process::Signal {
        // SAFETY: a value is only ever made of a number that is in the table or a real-time one that programs may
        // use, and so is neither 0 nor one that the C library keeps for itself
        unsafe { rustix::process::Signal::from_raw_unchecked(self.0) }
    }
}

impl fmt::Debug for SignalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&signal_name(self.0.unsigned_abs()))
    }
}

/// What was given is no signal that can be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "there is no signal {0:?} to send; those there are: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP, WINCH, … (as `kill -l` lists them), with or without SIG, or numbers from 1 to 64 but 32 and 33"
)]
pub(in crate::guest) struct UnknownSignal(String);

impl FromStr for SignalNumber {
    type Err = UnknownSignal;

    /// Reads `TERM`, `SIGTERM`, `15`, `RTMIN+3` or `RTMAX-1`, in any case.
    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let found = if upper.bytes().all(|byte| byte.is_ascii_digit()) {
            upper.parse().ok().filter(|number| is_named(*number) || REAL_TIME.contains(number))
        } else {
            NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number).or_else(|| real_time(name))
        };
        // cut, since it came over the wire and goes into an answer
        found.map(Self).ok_or_else(|| UnknownSignal(text.chars().take(32).collect()))
    }
}

/// What `kill -l` calls the number; the number itself where it has no name.
pub(in crate::guest) fn signal_name(number: u32) -> String {
    let Ok(signed) = i32::try_from(number) else { return number.to_string() };
    if let Some((name, _)) = NAMES.iter().find(|(_, known)| *known == signed) {
        return (*name).to_owned();
    }
    match signed - REAL_TIME.start() {
        0 => "RTMIN".to_owned(),
        above if REAL_TIME.contains(&signed) => format!("RTMIN+{above}"),
        _ => number.to_string(),
    }
}

fn is_named(number: i32) -> bool {
    NAMES.iter().any(|(_, known)| *known == number)
}

/// The number of `RTMIN`, `RTMIN+n`, `RTMAX` or `RTMAX-n`.
fn real_time(name: &str) -> Option<i32> {
    let offset = |text: &str, sign: char| -> Option<i32> {
        if text.is_empty() {
            return Some(0);
        }
        let digits = text.strip_prefix(sign)?;
        // without this `parse` would take a sign of its own
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => REAL_TIME.start().checked_add(offset(rest, '+')?),
        (_, Some(rest)) => REAL_TIME.end().checked_sub(offset(rest, '-')?),
        _ => None,
    };
    number.filter(|number| REAL_TIME.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<i32> {
        text.parse().ok().map(|signal: SignalNumber| signal.0)
    }

    #[test]
    fn names_and_numbers_are_read() {
        for text in ["TERM", "SIGTERM", "15", "term", "SigTerm", " TERM ", "015"] {
            assert_eq!(number(text), Some(15), "{text}");
        }
        let known = [("KILL", 9), ("9", 9), ("hup", 1), ("SIGCLD", libc::SIGCHLD), ("iot", libc::SIGABRT), ("64", 64)];
        for (text, expected) in known {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        for (text, expected) in [("RTMIN", 34), ("SIGRTMIN+3", 37), ("rtmax-1", 63), ("RTMAX", 64), ("RTMIN+30", 64)] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_signal_is_refused_with_some_that_are() {
        let wrong = [
            "",
            "0",
            "-1",
            "-9",
            "+9",
            "65",
            "32",
            "33",
            "99999999999",
            "SIG",
            "SIGSIGTERM",
            "TERMINATE",
            "1.5",
            "SIG9",
            "RTMIN-1",
            "RTMIN+31",
            "RTMIN++1",
            "RTMIN+-1",
            "RTMAX+1",
            "RTMAX-31",
            "RTMIN3",
            "RTMIN+",
            "EXIT",
            "é",
        ];
        for text in wrong {
            let error = text.parse::<SignalNumber>().unwrap_err().to_string();
            assert!(error.contains("TERM") && error.contains("KILL"), "{text}: {error}");
        }
        assert!("x".repeat(10_000).parse::<SignalNumber>().unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn numbers_have_names_that_are_read_again() {
        assert_eq!([signal_name(15), signal_name(37), signal_name(34)], ["TERM", "RTMIN+3", "RTMIN"]);
        assert_eq!(
            [signal_name(0), signal_name(32), signal_name(65), signal_name(u32::MAX)],
            ["0", "32", "65", "4294967295"]
        );
        for one in (1..=64).filter(|one| ![32, 33].contains(one)) {
            let name = signal_name(one);
            assert!(name.parse::<u32>().is_err(), "{one} has a name");
            assert_eq!(number(&name), i32::try_from(one).ok(), "{name}");
        }
    }

    /// What the system's own `kill` says.
    #[test]
    fn names_are_the_systems() {
        for one in (1..=31).filter(|one| ![16, 29].contains(one)) {
            #[expect(clippy::disallowed_methods, reason = "the other opinion")]
            let said =
                std::process::Command::new("sh").args(["-c", &format!("kill -l {one}")]).output().unwrap().stdout;
            let said = String::from_utf8_lossy(&said).trim().trim_start_matches("SIG").to_owned();
            assert_eq!(signal_name(one), said, "{one}");
        }
    }
}
