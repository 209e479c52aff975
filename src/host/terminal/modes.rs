//! What a program has changed of a terminal by control sequences, and how to undo it.
//!
//! A full-screen program that is left running, or that dies without a word, leaves its screen, its mouse and its cursor
//! behind. What is looked at are private modes (`ESC [ ? … h` and `l`) and the keypad; colours go with the screen.

use std::collections::BTreeSet;

/// Modes that are off in a terminal on which a shell waits: cursor keys, three ways to the other screen, mouse and
/// focus reports, pasted text in brackets.
const OFF: [u16; 12] = [1, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1049, 2004];
/// The cursor is shown: the one that is on.
const CURSOR: u16 = 25;
/// Most numbers of one sequence, and the largest of them.
const MOST_PARAMETERS: usize = 16;

/// Follows a program's output.
#[derive(Debug, Default)]
pub struct Modes {
    place: Place,
    parameters: Vec<u16>,
    /// Modes that are not as a shell has them.
    changed: BTreeSet<u16>,
    keypad: bool,
    /// Something was written since the last line end.
    midway: bool,
}

/// Where in a sequence the last byte was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    /// After `ESC`.
    Escape,
    /// After `ESC [`.
    Bracket,
    /// After `ESC [ ?`, among the numbers.
    Private,
}

impl Modes {
    /// Takes in what the program has written, in whatever pieces.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.place = self.after(*byte);
        }
        if let Some(last) = bytes.last() {
            self.midway = *last != b'\n';
        }
    }

    fn after(&mut self, byte: u8) -> Place {
        match (self.place, byte) {
            (_, 0x1b) => Place::Escape,
            (Place::Escape, b'[') => Place::Bracket,
            (Place::Escape, b'c') => {
                // a full reset
                self.changed.clear();
                self.keypad = false;
                Place::Text
            }
            (Place::Escape, b'=' | b'>') => {
                self.keypad = byte == b'=';
                Place::Text
            }
            (Place::Bracket, b'?') => {
                self.parameters = vec![0];
                Place::Private
            }
            (Place::Private, b'0'..=b'9') => {
                if let Some(last) = self.parameters.last_mut() {
                    *last = last.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
                Place::Private
            }
            (Place::Private, b';') if self.parameters.len() < MOST_PARAMETERS => {
                self.parameters.push(0);
                Place::Private
            }
            (Place::Private, b'h' | b'l') => {
                for mode in std::mem::take(&mut self.parameters) {
                    let is_as_before = (mode == CURSOR) == (byte == b'h');
                    if mode != CURSOR && !OFF.contains(&mode) {
                        continue;
                    }
                    if is_as_before {
                        self.changed.remove(&mode);
                    } else {
                        self.changed.insert(mode);
                    }
                }
                Place::Text
            }
            _ => Place::Text,
        }
    }

    /// What a terminal has to be sent to be as it was; nothing where it is.
    pub fn undo(&self) -> String {
        let mut text = String::new();
        if self.keypad {
            text.push_str("\x1b>");
        }
        // the other screen is among the last: what is undone before concerns both
        for mode in &self.changed {
            let end = if *mode == CURSOR { "h" } else { "l" };
            text.extend(["\x1b[?", &mode.to_string(), end]);
        }
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text
    }

    /// Whether the cursor stands behind something on its line; on the other screen that does not count.
    pub fn is_midway(&self) -> bool {
        self.midway && ![47, 1047, 1049].iter().any(|mode| self.changed.contains(mode))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(text: &str) -> Modes {
        let mut modes = Modes::default();
        modes.take(text.as_bytes());
        modes
    }

    #[test]
    fn what_is_left_is_undone() {
        assert_eq!(after("plain \x1b[31mred\x1b[0m \x1b[?7h\x1b[?12l").undo(), "");
        assert_eq!(
            after("\x1b[?1049h\x1b[?25l\x1b[?1;2004h\x1b=").undo(),
            "\x1b>\x1b[?1l\x1b[?25h\x1b[?1049l\x1b[?2004l\x1b[0m"
        );
        assert_eq!(after("\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l").undo(), "", "it has done so itself");
        assert_eq!(after("\x1b[?1049h\x1b[?1000h\x1b=\x1bc").undo(), "");
        assert_eq!(after("\x1b[?10\x1b[?49h [?1049h \x1b[1049h").undo(), "", "none of these is one");
        assert!(after("half a line").is_midway() && !after("a line\r\n").is_midway());
        assert!(!after("\x1b[?1049hdrawn").is_midway());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_no_byte_is_too_much(
            bytes in prop::collection::vec(prop::sample::select(b"\x1b[?1049;25hlc=> x\xff".to_vec()), 0..200),
            cut in 0_usize..200,
        ) {
            let (mut whole, mut pieces) = (Modes::default(), Modes::default());
            whole.take(&bytes);
            let (before, behind) = bytes.split_at(cut.min(bytes.len()));
            pieces.take(before);
            pieces.take(behind);
            prop_assert_eq!(whole.undo(), pieces.undo());
            // and undoing it leaves nothing to undo
            whole.take(whole.undo().clone().as_bytes());
            prop_assert_eq!(whole.undo(), "");
        }
    }
}
