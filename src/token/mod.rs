//! The bearer token: made once, stored for its owner alone, staged for the guest, watched there, and proved.
//!
//! A token is 32 random bytes. In files and in the `Authorization` header it stands as 64 hex digits. It never
//! appears in a `Debug` text, an error or a log, and its memory is wiped when it is dropped.

mod private;
mod proof;
mod stage;
mod store;
mod watch;

use std::fmt;

use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub use private::{Owners, ensure_private_dir, open_private, others_with_access, replace_private};
#[cfg(windows)]
pub(crate) use private::{Privacy, facts, is_elevated, is_on_disk, make_folder, open, own_sid, tighten};
pub use proof::{Challenge, Proof};
pub use stage::{STAGED_NAME, stage};
pub use store::{TOKEN_FILE, load, load_or_create};
pub use watch::{WatchSettings, watch};

/// Random bytes from the operating system's source: for secrets, and for names that nobody may guess.
///
/// # Errors
/// When the system has no randomness to give.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], TokenError> {
    use rand::TryRng as _;
    let mut bytes = [0; N];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(bytes)
}

/// A bearer token.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Token([u8; 32]);

impl Token {
    /// A new one from the operating system's source of randomness.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate() -> Result<Self, TokenError> {
        random_bytes().map(Self)
    }

    /// Reads 64 hex digits; a byte-order mark before them and blanks and line ends around them are passed over.
    ///
    /// # Errors
    /// [`MalformedToken`], which does not hold the text.
    pub fn parse(text: &[u8]) -> Result<Self, MalformedToken> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
        let mut bytes = [0; 32];
        if let Ok(()) = hex::decode_to_slice(text, &mut bytes) {
            Ok(Self(bytes))
        } else {
            bytes.zeroize();
            Err(MalformedToken { len: text.len() })
        }
    }

    /// The 64 hex digits, to be written to a file or a header and nowhere else.
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(hex::encode(self.0))
    }
}

/// Takes the same time wherever the two differ.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The text is not a token. Holds its length only: a mistyped secret is a secret too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a token: expected 64 hex digits, found {len} bytes of something else")]
pub struct MalformedToken {
    len: usize,
}

/// What can go wrong with a token's file. No variant holds any of its content.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// The file's content is not a token.
    #[error("{path} does not hold a token")]
    Malformed {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong, without the content.
        source: MalformedToken,
    },
    /// The path is a symbolic link, which might lead anywhere.
    #[error("{path} is a symbolic link; a secret is only read from and written to the real thing")]
    Symlink {
        /// The link.
        path: std::path::PathBuf,
    },
    /// The path is something else than asked for (a folder, a device, a pipe).
    #[error("{path} is not a {expected}")]
    WrongKind {
        /// The path.
        path: std::path::PathBuf,
        /// `regular file` or `folder`.
        expected: &'static str,
    },
    /// Somebody else owns it and could change it.
    #[error("{path} belongs to user {owner}, not to user {us}")]
    ForeignOwner {
        /// The file or folder.
        path: std::path::PathBuf,
        /// Its owner's id: a number on Unix, `S-1-…` on Windows.
        owner: String,
        /// The id of this process' user.
        us: String,
    },
    /// Reading or writing failed; the source names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00112233445566778899aabbccddeeff00112233445566778899aAbBcCdDeEfF";

    #[test]
    fn what_editors_put_around_it_is_accepted() {
        let plain = Token::parse(TEXT.as_bytes()).unwrap();
        for text in [format!("\u{feff}{TEXT}\r\n"), format!("  {TEXT}\t\n\n"), TEXT.to_uppercase()] {
            assert_eq!(Token::parse(text.as_bytes()).unwrap(), plain);
        }
        assert_eq!(plain.expose().as_str(), TEXT.to_lowercase());
    }

    #[test]
    fn anything_else_is_refused_and_not_shown() {
        for text in ["", "zz", &TEXT[1..], &format!("{TEXT}00"), &format!("{TEXT}\n{TEXT}"), &TEXT.replace('0', "g")] {
            let error = Token::parse(text.as_bytes()).unwrap_err();
            assert!(text.len() < 3 || !error.to_string().contains(text));
        }
    }

    #[test]
    fn debug_text_is_redacted() {
        let token = Token::generate().unwrap();
        let debug = format!("{token:?} {:?}", Some(&token));
        assert!(!debug.contains(token.expose().as_str()));
        assert!(!debug.contains(&format!("{:?}", token.0)));
    }

    #[test]
    fn two_tokens_differ() {
        assert_ne!(Token::generate().unwrap(), Token::generate().unwrap());
    }
}
