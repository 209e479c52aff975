//! Output as text: UTF-8 where it is, line by line what the system's own programs write where it is not.

use super::super::{process::Captured, sys};

use base64::{Engine as _, prelude::BASE64_STANDARD};

/// The text, and the bytes in base64 where the text does not give them back.
pub(super) fn text(captured: Captured) -> (String, Option<String>) {
    match String::from_utf8(captured.bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (by_lines(bytes, sys::foreign_text), Some(BASE64_STANDARD.encode(bytes)))
        }
    }
}

/// Each line for itself: a script's own output and that of the programs that it runs may differ, and no code page of a
/// system has a line feed inside of a character.
fn by_lines(bytes: &[u8], foreign: impl Fn(&[u8]) -> String) -> String {
    let mut text = String::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match std::str::from_utf8(line) {
            Ok(line) => text.push_str(line),
            // a last character that is cut off makes nothing else of the rest
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                text.push_str(&String::from_utf8_lossy(line));
            }
            Err(_) => text.push_str(&foreign(line)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in code page 437, as far as the tests go.
    fn oem(line: &[u8]) -> String {
        line.iter().map(|byte| if *byte == 0x82 { 'é' } else { char::from(*byte) }).collect()
    }

    #[test]
    fn lines_that_are_no_utf_8_are_read_by_the_systems_page() {
        assert_eq!(by_lines("漢 ✓\r\n".as_bytes(), oem), "漢 ✓\r\n");
        assert_eq!(by_lines(b"caf\x82\r\n\xe2\x9c\x93\r\n", oem), "café\r\n✓\r\n");
        assert_eq!(by_lines(b"\x82", oem), "é");
    }

    #[test]
    fn a_character_that_is_cut_off_spoils_nothing_else() {
        assert_eq!(by_lines(b"\xe2\x9c\x93 ok \xe2\x9c", oem), "✓ ok \u{fffd}");
    }

    #[test]
    fn bytes_stand_beside_a_text_that_does_not_give_them_back() {
        let captured = |bytes: &[u8]| Captured { bytes: bytes.to_vec(), total: bytes.len() as u64 };
        assert_eq!(text(captured("é".as_bytes())), ("é".to_owned(), None));
        assert_eq!(text(captured(b"a\xff")).1.as_deref(), Some("Yf8="));
    }
}
