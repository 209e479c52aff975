//! Signals by name: what can be done to a process here.

use std::str::FromStr;

use thiserror::Error;

/// A signal that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum SignalNumber {
    /// A Ctrl-C in the program's console: whoever is in it gets it.
    Interrupt,
    /// Ends a process at once, and leaves the exit code that goes with the signal elsewhere.
    End(u32),
}

/// By name and number, as they are known elsewhere.
const NAMES: [(&str, &str, SignalNumber); 3] = [
    ("INT", "2", SignalNumber::Interrupt),
    ("KILL", "9", SignalNumber::End(128 + 9)),
    ("TERM", "15", SignalNumber::End(128 + 15)),
];

/// What was given is no signal that can be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "there is no signal {0:?} to send; Windows has none, and these stand for what it has: INT (a Ctrl-C), TERM and KILL (both end it at once), with or without SIG, or as 2, 15 and 9"
)]
pub(in crate::guest) struct UnknownSignal(String);

impl FromStr for SignalNumber {
    type Err = UnknownSignal;

    /// Reads `TERM`, `SIGTERM` or `15`, in any case.
    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let found = NAMES.iter().find(|(known, number, _)| *known == name || *number == upper);
        // cut, since it came over the wire and goes into an answer
        found.map(|(_, _, signal)| *signal).ok_or_else(|| UnknownSignal(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_read_and_the_rest_refused_with_it() {
        for text in ["KILL", "sigkill", " 9 "] {
            assert_eq!(text.parse(), Ok(SignalNumber::End(137)), "{text}");
        }
        assert_eq!("SIGINT".parse(), Ok(SignalNumber::Interrupt));
        for text in ["HUP", "1", "", "SIG9", "-9", "USR1", &"x".repeat(10_000)] {
            let error = text.parse::<SignalNumber>().unwrap_err().to_string();
            assert!(error.contains("TERM and KILL") && error.len() < 400, "{text}: {error}");
        }
    }
}
