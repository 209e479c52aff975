//! The text of programs that do not write UTF-8.
//!
//! UNSAFETY: one Win32 call that reads a byte slice and fills a buffer, each with its own length.
#![expect(unsafe_code, reason = "the conversion has no safe form")]

use std::ptr;

use windows_sys::Win32::Globalization::{CP_OEMCP, MultiByteToWideChar};

/// The text of a line that is not UTF-8, read in the system's OEM code page, which console programs write by default.
pub(crate) fn foreign_text(line: &[u8]) -> String {
    from_oem(line).unwrap_or_else(|| String::from_utf8_lossy(line).into_owned())
}

fn from_oem(line: &[u8]) -> Option<String> {
    let length = i32::try_from(line.len()).ok().filter(|length| *length > 0)?;
    // SAFETY: reads `length` bytes of `line`; no buffer is given, so that only the room for the text is told.
    let room = unsafe { MultiByteToWideChar(CP_OEMCP, 0, line.as_ptr(), length, ptr::null_mut(), 0) };
    let mut wide = vec![0_u16; usize::try_from(room).ok().filter(|room| *room > 0)?];
    // SAFETY: as before, and writes at most `room` units, which is what `wide` holds.
    let written = unsafe { MultiByteToWideChar(CP_OEMCP, 0, line.as_ptr(), length, wide.as_mut_ptr(), room) };
    wide.truncate(usize::try_from(written).ok().filter(|written| *written > 0)?);
    Some(String::from_utf16_lossy(&wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_lost() {
        assert_eq!(foreign_text(b"plain"), "plain");
        assert_eq!(foreign_text(b""), "");
        // whatever the page is, bytes above ASCII become something
        assert!(!foreign_text(&[b'a', 0x82, 0x81, b'z']).is_empty());
    }
}
