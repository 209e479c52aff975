//! Text of bounded length: what is cut off is said to be missing.

use std::fmt;

/// Most bytes of one text in the log.
pub(in crate::guest) const LONGEST: usize = 64 * 1024;

/// Takes what is written into it, up to a bound, and counts the rest.
#[derive(Debug, Default)]
pub(in crate::guest) struct Bounded {
    kept: String,
    more: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.more == 0 { LONGEST - self.kept.len() } else { 0 };
        let end = text.floor_char_boundary(room);
        self.kept.push_str(&text[..end]);
        self.more += text.len() - end;
        Ok(())
    }
}

impl Bounded {
    /// The text, and behind it how many bytes more there were.
    pub(in crate::guest) fn into_text(self) -> String {
        match self.more {
            0 => self.kept,
            more => format!("{}… ({more} bytes more)", self.kept),
        }
    }
}

/// A text, cut on a character boundary where it is too long.
pub(in crate::guest) fn cut(text: impl fmt::Display) -> String {
    use fmt::Write as _;
    let mut bounded = Bounded::default();
    // a value whose own formatting fails is shown as far as it came
    write!(bounded, "{text}").ok();
    bounded.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_by_how_much() {
        assert_eq!(cut("short"), "short");
        let exact = "x".repeat(LONGEST);
        assert_eq!(cut(&exact), exact);
        let text = format!("x{}", "é".repeat(LONGEST / 2));
        let kept = LONGEST - 1;
        assert_eq!(cut(&text), format!("{}… ({} bytes more)", &text[..kept], text.len() - kept));
        // nothing that would fit follows what did not
        let pieces = cut(format_args!("{}é{}", "x".repeat(kept), "y"));
        assert_eq!(pieces, format!("{}… (3 bytes more)", "x".repeat(kept)));
    }
}
