//! The keys that leave a program running and end the command that watches it: `ctrl-p,ctrl-q` as docker has them.

use std::str::FromStr;

/// A sequence of keys; an empty one matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetachKeys(Vec<u8>);

impl DetachKeys {
    /// What is meant where nothing is said.
    pub(super) const DEFAULT: &str = "ctrl-p,ctrl-q";

    /// No key at all.
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }
}

impl FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == "none" {
            return Ok(Self::none());
        }
        text.split(',').map(key).collect::<Result<_, _>>().map(Self)
    }
}

fn key(text: &str) -> Result<u8, String> {
    let byte = match text.as_bytes() {
        [byte] if byte.is_ascii() => Some(*byte),
        _ => match text.strip_prefix("ctrl-").map(str::as_bytes) {
            Some([letter @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')]) => Some(letter & 0x1f),
            _ => None,
        },
    };
    byte.ok_or_else(|| {
        format!("{text:?} is no key; keys are characters and `ctrl-` with a-z or one of @[\\]^_, with commas between, or `none`")
    })
}

/// Looks for the keys in what is typed.
#[derive(Debug)]
pub(super) struct Detector {
    keys: DetachKeys,
    /// What has been typed of the keys and so was not passed on: a beginning of them.
    held: usize,
}

/// What came of a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// For the program.
    pub(super) pass: Vec<u8>,
    /// The keys came; what was typed after them is for nobody.
    pub(super) detach: bool,
}

impl Detector {
    /// A detector that has seen nothing yet.
    pub(super) const fn new(keys: DetachKeys) -> Self {
        Self { keys, held: 0 }
    }

    /// Takes in what was typed. A beginning of the keys is held back until the next key tells whether they go on.
    pub(super) fn take(&mut self, piece: Vec<u8>) -> Typed {
        let keys = &self.keys.0;
        if keys.is_empty() {
            return Typed { pass: piece, detach: false };
        }
        let mut pass = Vec::with_capacity(piece.len() + self.held);
        for byte in piece {
            // what is held goes on, first byte first, until the rest and this byte are a beginning of the keys again
            let mut seen = keys[..self.held].to_vec();
            seen.push(byte);
            while !keys.starts_with(&seen) {
                pass.push(seen.remove(0));
            }
            self.held = seen.len();
            if self.held == keys.len() {
                self.held = 0;
                return Typed { pass, detach: true };
            }
        }
        Typed { pass, detach: false }
    }

    /// What is still held back: the input has ended.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.keys.0[..held].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_read_as_docker_reads_them() {
        for (text, bytes) in [
            ("ctrl-p,ctrl-q", &[16, 17][..]),
            ("ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", &[0, 27, 28, 29, 30, 31]),
            ("~,.", b"~."),
            ("a", b"a"),
            ("none", b""),
            ("", b""),
        ] {
            assert_eq!(text.parse(), Ok(DetachKeys(bytes.to_vec())), "{text}");
        }
        for wrong in ["ctrl-", "ctrl-A", "ctrl-1", "ctrl-pq", "ab", "é", "a,", ","] {
            assert!(wrong.parse::<DetachKeys>().is_err(), "{wrong}");
        }
        assert_eq!(DetachKeys::DEFAULT.parse(), Ok(DetachKeys(vec![16, 17])));
    }

    fn typed(keys: &str, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut detector = Detector::new(keys.parse().unwrap());
        let mut pass = Vec::new();
        for piece in pieces {
            let typed = detector.take(piece.to_vec());
            pass.extend(typed.pass);
            if typed.detach {
                return (pass, true);
            }
        }
        pass.extend(detector.rest());
        (pass, false)
    }

    #[test]
    fn a_beginning_that_does_not_go_on_is_passed_on() {
        assert_eq!(typed("ctrl-p,ctrl-q", &[b"ls\x10", b"\x11rest"]), (b"ls".to_vec(), true));
        assert_eq!(typed("ctrl-p,ctrl-q", &[b"\x10", b"x"]), (b"\x10x".to_vec(), false));
        assert_eq!(typed("ctrl-p,ctrl-q", &[b"\x10\x10\x11"]), (b"\x10".to_vec(), true), "the second begins it");
        assert_eq!(typed("a,a,b", &[b"aa", b"ab"]), (b"a".to_vec(), true));
        assert_eq!(typed("ctrl-p,ctrl-q", &[b"\x10"]), (b"\x10".to_vec(), false));
        assert_eq!(typed("none", &[b"\x10\x11"]), (b"\x10\x11".to_vec(), false));
        let mut detector = Detector::new("ctrl-p,ctrl-q".parse().unwrap());
        assert!(detector.take(vec![16]).pass.is_empty(), "held back");
    }

    proptest! {
        #[test]
        fn all_that_is_typed_before_the_keys_arrives(
            bytes in prop::collection::vec(0_u8..3, 0..60), cuts in prop::collection::vec(1_usize..5, 1..20)
        ) {
            let keys = DetachKeys(vec![0, 1, 0]);
            let mut pieces = Vec::new();
            let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            let mut detector = Detector::new(keys);
            let (mut pass, mut detach) = (Vec::new(), false);
            for piece in pieces {
                let typed = detector.take(piece.to_vec());
                pass.extend(typed.pass);
                detach = typed.detach;
                if detach {
                    break;
                }
            }
            if !detach {
                pass.extend(detector.rest());
            }
            let found = bytes.windows(3).position(|window| window == [0, 1, 0]);
            prop_assert_eq!(detach, found.is_some());
            prop_assert_eq!(&pass[..], &bytes[..found.unwrap_or(bytes.len())]);
        }
    }
}
