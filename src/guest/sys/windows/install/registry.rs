//! One value of the registry below `HKEY_CURRENT_USER`.
//!
//! UNSAFETY: the registry's functions take pointers to texts that end with a zero, and to buffers with their length.
//! Both are made here and outlive the call.
#![expect(unsafe_code, reason = "the registry has no safe form")]

use std::{io, os::windows::ffi::OsStrExt as _, ptr};

use windows_sys::Win32::{
    Foundation::{ERROR_FILE_NOT_FOUND, ERROR_MORE_DATA, ERROR_PATH_NOT_FOUND, ERROR_SUCCESS},
    System::Registry::{
        HKEY, HKEY_CURRENT_USER, KEY_SET_VALUE, KEY_WOW64_64KEY, REG_OPTION_NON_VOLATILE, REG_SZ, RRF_RT_REG_SZ,
        RegCloseKey, RegCreateKeyExW, RegDeleteValueW, RegGetValueW, RegOpenKeyExW, RegSetValueExW,
    },
};

/// An open key; dropping it closes it.
struct Key(HKEY);

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is closed once.
        unsafe { RegCloseKey(self.0) };
    }
}

/// Ended by a zero, as Win32 reads texts.
pub(super) fn wide(text: &str) -> Vec<u16> {
    std::ffi::OsStr::new(text).encode_wide().chain([0]).collect()
}

fn checked(code: u32) -> io::Result<()> {
    if code == ERROR_SUCCESS { Ok(()) } else { Err(io::Error::from_raw_os_error(code.cast_signed())) }
}

/// Reads a text; `None` where there is none.
pub(super) fn read(key: &str, name: &str) -> io::Result<Option<String>> {
    let (key, name) = (wide(key), wide(name));
    let mut buffer = vec![0_u16; 512];
    loop {
        let mut bytes = u32::try_from(buffer.len() * 2).map_err(io::Error::other)?;
        // SAFETY: the texts end with a zero; the buffer is as long as `bytes` says.
        let code = unsafe {
            RegGetValueW(
                HKEY_CURRENT_USER,
                key.as_ptr(),
                name.as_ptr(),
                RRF_RT_REG_SZ,
                ptr::null_mut(),
                buffer.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        match code {
            ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND => return Ok(None),
            ERROR_MORE_DATA if buffer.len() < 1 << 16 => buffer.resize(buffer.len() * 4, 0),
            code => {
                checked(code)?;
                let text = buffer.split(|unit| *unit == 0).next().unwrap_or_default();
                return Ok(Some(String::from_utf16_lossy(text)));
            }
        }
    }
}

/// Writes a text.
pub(super) fn write(key: &str, name: &str, text: &str) -> io::Result<()> {
    let (path, name, text) = (wide(key), wide(name), wide(text));
    let mut handle: HKEY = ptr::null_mut();
    // SAFETY: the path ends with a zero; the handle is written on success.
    let code = unsafe {
        RegCreateKeyExW(
            HKEY_CURRENT_USER,
            path.as_ptr(),
            0,
            ptr::null(),
            REG_OPTION_NON_VOLATILE,
            KEY_SET_VALUE | KEY_WOW64_64KEY,
            ptr::null(),
            &raw mut handle,
            ptr::null_mut(),
        )
    };
    checked(code)?;
    let key = Key(handle);
    let bytes = u32::try_from(text.len() * 2).map_err(io::Error::other)?;
    // SAFETY: the key is open; name and text end with a zero, and the text is as long as said.
    checked(unsafe { RegSetValueExW(key.0, name.as_ptr(), 0, REG_SZ, text.as_ptr().cast(), bytes) })
}

/// Removes a value; one that is not there is as good.
pub(super) fn remove(key: &str, name: &str) -> io::Result<()> {
    let (path, name) = (wide(key), wide(name));
    let mut handle: HKEY = ptr::null_mut();
    // SAFETY: the path ends with a zero; the handle is written on success.
    let code =
        unsafe { RegOpenKeyExW(HKEY_CURRENT_USER, path.as_ptr(), 0, KEY_SET_VALUE | KEY_WOW64_64KEY, &raw mut handle) };
    if code == ERROR_FILE_NOT_FOUND {
        return Ok(());
    }
    checked(code)?;
    let key = Key(handle);
    // SAFETY: the key is open; the name ends with a zero.
    match unsafe { RegDeleteValueW(key.0, name.as_ptr()) } {
        ERROR_FILE_NOT_FOUND => Ok(()),
        code => checked(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_read_and_removed() {
        let key = format!(r"Software\podlink-test-{}", std::process::id());
        assert_eq!(read(&key, "a").unwrap(), None);
        let long = "ä漢 & \"quoted\" ".repeat(200);
        for text in ["one", &long] {
            write(&key, "a", text).unwrap();
            assert_eq!(read(&key, "a").unwrap().as_deref(), Some(text));
        }
        remove(&key, "a").unwrap();
        remove(&key, "a").unwrap();
        assert_eq!(read(&key, "a").unwrap(), None);
    }
}
