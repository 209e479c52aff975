//! The exit codes of `podlink`, all in one place.

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// All went as asked.
    pub const SUCCESS: Self = Self(0);
    /// `pod doctor` found something broken, or `pod time-sync` a clock that is off and was left so.
    pub const BROKEN: Self = Self(1);
    /// The command line was wrong; clap's own code.
    pub const USAGE: Self = Self(2);
    /// A wait reached its time-out.
    pub const WAIT_TIMED_OUT: Self = Self(10);
    /// There is no container, or it is gone.
    pub const NO_CONTAINER: Self = Self(11);
    /// The agent answers with another token.
    pub const TOKEN_MISMATCH: Self = Self(12);
    /// Another program answers on the agent's port.
    pub const FOREIGN_PROGRAM: Self = Self(13);
    /// The guest's installation failed.
    pub const INSTALL_FAILED: Self = Self(14);
    /// The agent is to be started again; its supervisor, or the service manager, knows it by that.
    pub const RESTART: Self = Self(75);
    /// The remote program was killed by its time-out, as coreutils' `timeout` has it.
    pub const REMOTE_TIMED_OUT: Self = Self(124);
    /// podlink itself failed, as `docker run` and coreutils have it.
    pub const FAILED: Self = Self(125);
    /// The terminal hung up: 128 + SIGHUP.
    pub const HUNG_UP: Self = Self(129);
    /// Ctrl-C: 128 + SIGINT.
    pub const INTERRUPTED: Self = Self(130);
    /// SIGQUIT while the terminal was raw: 128 + its number.
    pub const QUIT: Self = Self(131);
    /// Nobody reads the output any more: 128 + SIGPIPE, what a program without a handler would end with.
    pub const UNREAD: Self = Self(141);
    /// SIGTERM: 128 + its number.
    pub const TERMINATED: Self = Self(143);

    /// The remote program's own code: above 255 its low byte, or 1 where that would be 0.
    ///
    /// A failure never becomes 0.
    pub fn of_remote(rc: i64) -> Self {
        match u8::try_from(rc) {
            Ok(code) => Self(code),
            Err(_) => Self(u8::try_from(rc & 0xff).unwrap_or(1).max(1)),
        }
    }

    /// Whether [`Exit::of_remote`] has to shorten this code.
    pub fn is_shortened(rc: i64) -> bool {
        u8::try_from(rc).is_err()
    }

    /// A code that does not fit, for people: those that Windows itself ends programs with are known by their hexadecimal
    /// form.
    pub fn in_words(rc: i64) -> String {
        // other agents have them with a sign
        let code = i32::try_from(rc).map(i32::cast_unsigned).or_else(|_| u32::try_from(rc));
        match code {
            Ok(code @ 0x8000_0000..) => format!("0x{code:08X} ({rc})"),
            _ => rc.to_string(),
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_codes() {
        for (rc, exit) in [(0, 0), (7, 7), (255, 255), (256, 1), (300, 44), (0xC000_0005, 5), (-1, 255), (1 << 40, 1)] {
            assert_eq!(Exit::of_remote(rc), Exit(exit), "{rc}");
        }
    }

    #[test]
    fn who_keeps_an_agent_alive_knows_its_code() {
        assert_eq!(Exit::RESTART, Exit(crate::guest::RESTART_CODE));
    }

    #[test]
    fn codes_of_windows_are_shown_as_they_are_known() {
        for (rc, words) in [
            (0xC000_0005, "0xC0000005 (3221225477)"),
            (0xFFFF_FFFF, "0xFFFFFFFF (4294967295)"),
            (0x8000_0003, "0x80000003 (2147483651)"),
            (300, "300"),
            (-1_073_741_819, "0xC0000005 (-1073741819)"),
            (1 << 40, "1099511627776"),
        ] {
            assert_eq!(Exit::in_words(rc), words);
        }
    }

    proptest! {
        #[test]
        fn a_failure_never_becomes_success(rc in any::<i64>().prop_filter("not 0", |rc| *rc != 0)) {
            prop_assert_ne!(Exit::of_remote(rc), Exit::SUCCESS);
        }
    }
}
