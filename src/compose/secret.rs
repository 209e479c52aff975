//! A password: text that no `Debug` shows and that is wiped from memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A text that must not be seen.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes it over.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, to be written into a private file and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_is_redacted() {
        assert!(!format!("{:?}", Some(Secret::new("hunter2".into()))).contains("hunter2"));
    }
}
