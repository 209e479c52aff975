//! Who is logged in, as the system's sessions have it.
//!
//! UNSAFETY: the calls give pointers to what they allocate. Each is read within the length that is told with it, and let go
//! of by an owner that is made at once.
#![expect(unsafe_code, reason = "sessions have no safe form")]

use std::{ffi::c_void, ptr::null_mut};

use jiff::Timestamp;
use windows_sys::Win32::System::RemoteDesktop::{
    WTS_CURRENT_SERVER_HANDLE, WTS_INFO_CLASS, WTS_SESSION_INFOW, WTSActive, WTSClientName, WTSDisconnected,
    WTSEnumerateSessionsW, WTSFreeMemory, WTSINFOW, WTSQuerySessionInformationW, WTSSessionInfo, WTSUserName,
};

use super::nt::{unix_ns, until_zero};
use crate::protocol::LoggedIn;

/// Most of them that are told of.
const MOST: usize = 256;

/// What a call has allocated.
struct Allocated<T>(*mut T);

impl<T> Drop for Allocated<T> {
    fn drop(&mut self) {
        // SAFETY: the calls ask for this, and it is done once.
        unsafe { WTSFreeMemory(self.0.cast::<c_void>()) };
    }
}

/// Everybody who is logged in, those whose screen is not connected included.
pub(super) fn logged_in() -> Vec<LoggedIn> {
    let (mut list, mut count): (*mut WTS_SESSION_INFOW, u32) = (null_mut(), 0);
    // SAFETY: the places are of their types.
    let told = unsafe { WTSEnumerateSessionsW(WTS_CURRENT_SERVER_HANDLE, 0, 1, &raw mut list, &raw mut count) };
    if told == 0 || list.is_null() {
        return Vec::new();
    }
    let list = Allocated(list);
    // SAFETY: so many are in the list.
    let sessions = unsafe { std::slice::from_raw_parts(list.0, count as usize) };
    let someones = sessions.iter().filter(|session| [WTSActive, WTSDisconnected].contains(&session.State));
    someones.filter_map(|session| of_session(session.SessionId)).take(MOST).collect()
}

fn of_session(id: u32) -> Option<LoggedIn> {
    let user = text(id, WTSUserName)?;
    let (mut terminal, mut since) = (None, None);
    if let Some((info, len)) = ask::<WTSINFOW>(id, WTSSessionInfo)
        && len >= size_of::<WTSINFOW>()
    {
        // SAFETY: what is there is at least as long.
        let info = unsafe { info.0.read_unaligned() };
        terminal = Some(until_zero(&info.WinStationName)).filter(|name| !name.is_empty());
        since = u64::try_from(info.LogonTime)
            .ok()
            .filter(|ticks| *ticks > 0)
            .and_then(unix_ns)
            .and_then(|time| Timestamp::from_second(time.div_euclid(1_000_000_000)).ok())
            .map(|time| time.to_string());
    }
    Some(LoggedIn { user, terminal, from: text(id, WTSClientName), since })
}

fn ask<T>(session: u32, what: WTS_INFO_CLASS) -> Option<(Allocated<T>, usize)> {
    let (mut answer, mut len) = (null_mut(), 0);
    // SAFETY: the places are of their types.
    let told =
        unsafe { WTSQuerySessionInformationW(WTS_CURRENT_SERVER_HANDLE, session, what, &raw mut answer, &raw mut len) };
    (told != 0 && !answer.is_null()).then(|| (Allocated(answer.cast()), len as usize))
}

fn text(session: u32, what: WTS_INFO_CLASS) -> Option<String> {
    let (answer, len) = ask::<u16>(session, what)?;
    // SAFETY: so many bytes are there.
    let text = until_zero(unsafe { std::slice::from_raw_parts(answer.0, len / 2) });
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_logged_in_have_names() {
        // a service's machine may have nobody
        assert!(logged_in().iter().all(|login| !login.user.is_empty()));
    }
}
