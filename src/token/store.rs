//! The token's file: loaded with care, made once and never again in silence.

use std::{io::Read as _, path::Path};

use zeroize::Zeroizing;

use super::{
    Token, TokenError,
    private::{Owners, create_private, open_private},
};

/// The token's file name in a pod's folder on the host.
pub const TOKEN_FILE: &str = "agent_token.txt";

/// More than a token, a mark and blanks ever take: a file beyond it is not one.
const MAX_FILE: u64 = 4096;

/// Reads the token at `path`.
///
/// # Errors
/// See [`open_private`](super::open_private); and [`TokenError::Malformed`], which names the file and not its content.
pub fn load(path: &Path, owners: Owners) -> Result<Token, TokenError> {
    let mut content = Zeroizing::new(Vec::with_capacity(usize::try_from(MAX_FILE).unwrap_or(0) + 1));
    open_private(path, owners)?.take(MAX_FILE).read_to_end(&mut content)?;
    Token::parse(&content).map_err(|source| TokenError::Malformed { path: path.to_owned(), source })
}

/// Reads the token at `path`, or makes a new one there; tells which.
///
/// Of several processes that do so at once one makes it and all return the same.
///
/// # Errors
/// As [`load`], and when the folder cannot be written. A file that is there and does not hold a token is an error:
/// it is never replaced.
pub fn load_or_create(path: &Path) -> Result<(Token, bool), TokenError> {
    match load(path, Owners::Us) {
        Err(TokenError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
        other => return other.map(|token| (token, false)),
    }
    let token = Token::generate()?;
    if create_private(path, file_content(&token).as_bytes())? {
        return Ok((token, true));
    }
    load(path, Owners::Us).map(|token| (token, false))
}

/// A token's file: the digits and a line end.
pub(super) fn file_content(token: &Token) -> Zeroizing<String> {
    let mut content = Zeroizing::new(String::with_capacity(65));
    content.push_str(&token.expose());
    content.push('\n');
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(TOKEN_FILE);
        let (first, made) = load_or_create(&path).unwrap();
        assert!(made);
        let (second, made) = load_or_create(&path).unwrap();
        assert!(!made);
        assert_eq!(first, second);
    }

    #[test]
    fn a_file_that_holds_something_else_is_kept_and_not_shown() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(TOKEN_FILE);
        super::super::replace_private(&path, b"hunter2-hunter2").unwrap();
        let error = load_or_create(&path).unwrap_err();
        let text = format!("{error} {error:?} {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(text.contains(TOKEN_FILE) && !text.contains("hunter2"), "{text}");
        assert_eq!(fs_err::read(&path).unwrap(), b"hunter2-hunter2");
    }

    #[test]
    fn many_at_once_end_with_one_token() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(TOKEN_FILE);
        let tokens: Vec<Token> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| load_or_create(&path).unwrap().0)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]));
        assert_eq!(fs_err::read_dir(top.path()).unwrap().count(), 1);
    }
}
