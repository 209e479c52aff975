//! Who we are, and who can do all in any case: identities as text, `S-1-…`.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; a
//! handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "access tokens have no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    ptr::null_mut,
    sync::OnceLock,
};

use windows_sys::Win32::{
    Security::{GetTokenInformation, PSID, TOKEN_ELEVATION, TOKEN_QUERY, TOKEN_USER, TokenElevation, TokenUser},
    System::Threading::{GetCurrentProcess, OpenProcessToken},
};

/// The system's own account.
pub(super) const SYSTEM: &str = "S-1-5-18";

/// The group of those who may do all in any case.
pub(super) const ADMINISTRATORS: &str = "S-1-5-32-544";

/// The service that installs Windows: the owner of what lies in its image.
const INSTALLER: &str = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";

/// Whether who has this identity can do all in any case: nothing is kept from them, and nothing they made is foreign.
pub(super) fn may_do_all(sid: &str) -> bool {
    [SYSTEM, ADMINISTRATORS, INSTALLER].contains(&sid)
}

/// This process' access token, to ask it something.
fn own_token() -> io::Result<OwnedHandle> {
    let mut token = null_mut();
    // SAFETY: the pseudo handle of this process needs no closing; `token` is a place for a handle.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(token) })
}

/// The identity of this process' account, `S-1-5-…`.
///
/// # Errors
/// When the system does not tell.
pub(crate) fn own_sid() -> io::Result<&'static str> {
    static OWN: OnceLock<String> = OnceLock::new();
    if let Some(sid) = OWN.get() {
        return Ok(sid);
    }
    let token = own_token()?;
    // the longest identity has 68 bytes
    let mut buffer = [0_u64; 32];
    let mut len = 0;
    let size = u32::try_from(size_of_val(&buffer)).unwrap_or(0);
    // SAFETY: the buffer is as long as is said, and aligned for the structure at its begin.
    let told = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, buffer.as_mut_ptr().cast(), size, &raw mut len)
    };
    if told == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the buffer with this structure, whose pointer points into the buffer.
    let text = unsafe { sid_text((*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid) };
    Ok(OWN.get_or_init(|| text))
}

/// Whether this process holds the machine's full rights.
pub(crate) fn is_elevated() -> bool {
    let Ok(token) = own_token() else { return false };
    let mut elevation = TOKEN_ELEVATION::default();
    let mut len = 0;
    let size = u32::try_from(size_of::<TOKEN_ELEVATION>()).unwrap_or(0);
    // SAFETY: the structure is of the size that is said, and the kind that is asked for.
    let told = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenElevation, (&raw mut elevation).cast(), size, &raw mut len)
    };
    told != 0 && elevation.TokenIsElevated != 0
}

/// An identity as text.
///
/// # Safety
/// `sid` points at a valid identity.
pub(super) unsafe fn sid_text(sid: PSID) -> String {
    let at = sid.cast::<u8>().cast_const();
    // SAFETY: an identity begins with its revision, the count of its numbers and six bytes of its authority.
    let (revision, count, authority) = unsafe { (*at, *at.add(1), std::slice::from_raw_parts(at.add(2), 6)) };
    let authority = authority.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    // SAFETY: behind those eight bytes stand as many numbers of four bytes.
    let numbers = unsafe { std::slice::from_raw_parts(at.add(8), usize::from(count) * 4) };
    let mut text = format!("S-{revision}-{authority}");
    for number in numbers.chunks_exact(4) {
        let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        text += &format!("-{number}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_text() {
        let mut sid = [1_u8, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
        // SAFETY: it is the administrators'.
        let text = unsafe { sid_text(sid.as_mut_ptr().cast()) };
        assert_eq!(text, ADMINISTRATORS);
        assert!(may_do_all(&text) && !may_do_all("S-1-1-0"));
        assert!(own_sid().unwrap().starts_with("S-1-5-"));
    }
}
