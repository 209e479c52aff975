//! The account and session that the agent runs in.
//!
//! UNSAFETY: Win32 takes pointers. Each that is given here points at a value that lives across the call.
#![expect(unsafe_code, reason = "who we are has no safe form")]

use std::mem::size_of;

use windows_sys::Win32::System::{
    RemoteDesktop::ProcessIdToSessionId,
    StationsAndDesktops::{GetProcessWindowStation, GetUserObjectInformationW, UOI_FLAGS, USEROBJECTFLAGS},
    WindowsProgramming::GetUserNameW,
};

use crate::{guest::account::Account, token};

/// The window station of those who sit at the machine, or are connected to it, is visible; a service's is not.
const VISIBLE: u32 = 1;

/// Looks them up.
pub(in crate::guest) fn account() -> Account {
    Account {
        user: user_name().unwrap_or_else(|| token::own_sid().map_or_else(|_| String::new(), str::to_owned)),
        session_id: session_of(std::process::id()).unwrap_or(0),
        interactive: has_desktop(),
        elevated: token::is_elevated(),
    }
}

fn user_name() -> Option<String> {
    // the longest that there is has 256 characters
    let mut buffer = [0_u16; 512];
    let mut len = u32::try_from(buffer.len()).unwrap_or(0);
    // SAFETY: the buffer is as long as is said.
    if unsafe { GetUserNameW(buffer.as_mut_ptr(), &raw mut len) } == 0 {
        return None;
    }
    // the zero at the end is counted
    let name = buffer.get(..usize::try_from(len).ok()?.checked_sub(1)?)?;
    Some(String::from_utf16_lossy(name)).filter(|name| !name.is_empty())
}

/// The session that a process is in.
pub(super) fn session_of(pid: u32) -> Option<u32> {
    let mut session = 0;
    // SAFETY: the place is of its type.
    (unsafe { ProcessIdToSessionId(pid, &raw mut session) } != 0).then_some(session)
}

fn has_desktop() -> bool {
    // SAFETY: it takes nothing, and its handle is not to be closed.
    let station = unsafe { GetProcessWindowStation() };
    let mut flags = USEROBJECTFLAGS::default();
    let (mut len, size) = (0, u32::try_from(size_of::<USEROBJECTFLAGS>()).unwrap_or(0));
    // SAFETY: the structure is of the size that is said, and the kind that is asked for.
    let told = unsafe { GetUserObjectInformationW(station, UOI_FLAGS, (&raw mut flags).cast(), size, &raw mut len) };
    told != 0 && flags.dwFlags & VISIBLE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_runs_this() {
        let account = account();
        let of_environment = std::env::var("USERNAME").unwrap_or_default();
        assert_eq!(account.user.to_lowercase(), of_environment.to_lowercase());
        assert_eq!(session_of(std::process::id()), Some(account.session_id));
        assert!(token::own_sid().unwrap().starts_with("S-1-5-"), "{:?}", token::own_sid());
    }
}
