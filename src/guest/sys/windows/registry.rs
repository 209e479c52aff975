//! The registry, read.
//!
//! UNSAFETY: the calls take and give pointers. Each that is given points at a value that lives across the call, as long as
//! is said; an opened key is closed by its owner.
#![expect(unsafe_code, reason = "the registry has no safe form")]

use std::{io, ptr::null_mut};

use windows_sys::Win32::{
    Foundation::{ERROR_MORE_DATA, ERROR_NO_MORE_ITEMS, ERROR_SUCCESS},
    System::Registry::{
        HKEY, HKEY_CURRENT_USER, HKEY_LOCAL_MACHINE, KEY_READ, KEY_WOW64_32KEY, KEY_WOW64_64KEY, REG_SAM_FLAGS,
        RRF_NOEXPAND, RRF_RT_REG_DWORD, RRF_RT_REG_EXPAND_SZ, RRF_RT_REG_SZ, RegCloseKey, RegEnumKeyExW, RegGetValueW,
        RegOpenKeyExW,
    },
};

use super::nt::{until_zero, wide};

/// Characters of a value that are read at most: more than any text there ought to have.
const MOST: u32 = 64 * 1024;

/// Where a key is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hive {
    /// Of the machine, as its own programs see it.
    Machine,
    /// Of the machine, as programs of 32 bits see it.
    Machine32,
    /// Of this process' account.
    User,
}

impl Hive {
    fn root(self) -> (HKEY, REG_SAM_FLAGS) {
        match self {
            Self::Machine => (HKEY_LOCAL_MACHINE, KEY_WOW64_64KEY),
            Self::Machine32 => (HKEY_LOCAL_MACHINE, KEY_WOW64_32KEY),
            Self::User => (HKEY_CURRENT_USER, 0),
        }
    }
}

/// An open key.
pub(super) struct Key(HKEY);

impl Key {
    /// Opens it to be read.
    ///
    /// # Errors
    /// When there is none, or it may not be read.
    pub(super) fn open(hive: Hive, path: &str) -> io::Result<Self> {
        let ((root, view), path, mut key) = (hive.root(), wide(path), null_mut());
        // SAFETY: the path ends with a zero, and the place is one for a key.
        check(unsafe { RegOpenKeyExW(root, path.as_ptr(), 0, KEY_READ | view, &raw mut key) })?;
        Ok(Self(key))
    }

    /// The names of the keys in it.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut names = Vec::new();
        for index in 0.. {
            // no name is longer
            let mut name = [0_u16; 256];
            let mut len = 256;
            // SAFETY: the key is open, and the buffer as long as is said.
            let code = unsafe {
                RegEnumKeyExW(
                    self.0,
                    index,
                    name.as_mut_ptr(),
                    &raw mut len,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                    null_mut(),
                )
            };
            match code {
                ERROR_SUCCESS => names.push(until_zero(&name)),
                ERROR_NO_MORE_ITEMS => break,
                _ if index > MOST => break,
                _ => {}
            }
        }
        names
    }

    /// A value that is text, of a key in this one, or of this one where that is `""`.
    pub(super) fn text(&self, key: &str, name: &str) -> Option<String> {
        let (key, name) = (wide(key), wide(name));
        let mut buffer = vec![0_u16; 256];
        loop {
            let mut len = u32::try_from(size_of_val(&*buffer)).ok()?;
            // SAFETY: names end with zeros, and the buffer is as long as is said.
            let code = unsafe {
                RegGetValueW(
                    self.0,
                    key.as_ptr(),
                    name.as_ptr(),
                    RRF_RT_REG_SZ | RRF_RT_REG_EXPAND_SZ | RRF_NOEXPAND,
                    null_mut(),
                    buffer.as_mut_ptr().cast(),
                    &raw mut len,
                )
            };
            match code {
                ERROR_SUCCESS => return Some(until_zero(&buffer)).filter(|text| !text.is_empty()),
                ERROR_MORE_DATA if len <= MOST => buffer = vec![0; len as usize / 2 + 16],
                _ => return None,
            }
        }
    }

    /// A value that is a number, likewise.
    pub(super) fn number(&self, key: &str, name: &str) -> Option<u32> {
        let (key, name, mut value, mut len) = (wide(key), wide(name), 0_u32, 4);
        // SAFETY: names end with zeros, and the value is as long as is said.
        let code = unsafe {
            RegGetValueW(
                self.0,
                key.as_ptr(),
                name.as_ptr(),
                RRF_RT_REG_DWORD,
                null_mut(),
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        (code == ERROR_SUCCESS).then_some(value)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { RegCloseKey(self.0) };
    }
}

fn check(code: u32) -> io::Result<()> {
    if code == ERROR_SUCCESS { Ok(()) } else { Err(io::Error::from_raw_os_error(code.cast_signed())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read() {
        let windows = Key::open(Hive::Machine, r"SOFTWARE\Microsoft\Windows NT\CurrentVersion").unwrap();
        let build = windows.text("", "CurrentBuildNumber").unwrap();
        assert!(build.parse::<u32>().is_ok_and(|build| build > 0), "{build}");
        assert!(windows.number("", "CurrentMajorVersionNumber").is_some_and(|number| number >= 10));
        assert_eq!(windows.number("", "CurrentBuildNumber"), None, "text is no number");
        let above = Key::open(Hive::Machine, r"SOFTWARE\Microsoft\Windows NT").unwrap();
        assert!(above.keys().contains(&"CurrentVersion".to_owned()));
        assert_eq!(above.text("CurrentVersion", "CurrentBuildNumber"), Some(build));
        assert_eq!(Key::open(Hive::User, r"Software\podlink-none").err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
