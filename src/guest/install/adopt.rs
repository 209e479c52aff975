//! The token on its way from the bundle to the agent's own copy.

use std::{io::ErrorKind, path::Path};

use anyhow::Context as _;

use super::places::Places;
use crate::token::{Owners, Token, TokenError, ensure_private_dir, load, others_with_access, replace_private};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Adopted {
    /// The agent has its copy, and the bundle has none any more.
    Have,
    /// The same, and it was this look that made it.
    Taken,
    /// It has its copy; the bundle's could not be removed, for this reason.
    Left(String),
    /// There is none yet that could be used, for this reason.
    Missing(String),
}

/// Takes the bundle's token over where there is one: copies it to where only the account and the system can read it,
/// reads that back, and only then removes the bundle's.
///
/// # Errors
/// When the copy cannot be made.
pub(super) fn adopt(places: &Places) -> anyhow::Result<Adopted> {
    let staged = places.staged_token();
    let own = &places.token_file;
    if staged == *own {
        return Ok(have(own).unwrap_or_else(Adopted::Missing));
    }
    let token = match load(&staged, Owners::UsOrRoot) {
        Ok(token) => token,
        Err(TokenError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            return Ok(have(own).unwrap_or_else(|reason| Adopted::Missing(waiting(&staged, &reason))));
        }
        // half of it is there, say: what the agent has stays in force
        Err(error) => {
            let reason = format!("{:#}", anyhow::Error::from(error));
            return Ok(have(own).map_or_else(|_| Adopted::Missing(reason.clone()), |_| Adopted::Left(reason.clone())));
        }
    };
    if !matches!(load(own, Owners::UsOrRoot), Ok(known) if known == token) {
        keep(&token, own)?;
    }
    match std::fs::remove_file(&staged) {
        Ok(()) => Ok(Adopted::Taken),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Adopted::Taken),
        Err(error) => Ok(Adopted::Left(format!("{} could not be removed: {error}", staged.display()))),
    }
}

fn keep(token: &Token, own: &Path) -> anyhow::Result<()> {
    if let Some(folder) = own.parent() {
        ensure_private_dir(folder)?;
    }
    let mut content = zeroize::Zeroizing::new(String::with_capacity(65));
    content.push_str(&token.expose());
    content.push('\n');
    replace_private(own, content.as_bytes()).context("the agent's own copy of the token could not be written")?;
    let read = load(own, Owners::UsOrRoot).context("the agent's own copy of the token could not be read back")?;
    anyhow::ensure!(read == *token, "{} holds another token than was written", own.display());
    let others = others_with_access(own)?;
    anyhow::ensure!(others.is_empty(), "{} can be read by others: {}", own.display(), others.join(", "));
    Ok(())
}

fn have(own: &Path) -> Result<Adopted, String> {
    load(own, Owners::UsOrRoot).map(|_| Adopted::Have).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

fn waiting(staged: &Path, reason: &str) -> String {
    format!("waiting for {}; the agent's own copy: {reason}", staged.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(top: &Path) -> Places {
        let [bundle, state] = ["bundle", "state"].map(|name| top.join(name));
        for folder in [&bundle, &state] {
            ensure_private_dir(folder).unwrap();
        }
        let token_file = top.join("own/token");
        Places { bundle, exe: top.join("exe"), state, token_file, root: None }
    }

    #[test]
    fn it_is_waited_for_taken_and_taken_again() {
        let top = tempfile::tempdir().unwrap();
        let places = places(top.path());
        assert!(matches!(adopt(&places).unwrap(), Adopted::Missing(reason) if reason.contains("waiting for")));

        replace_private(&places.staged_token(), b"0123").unwrap();
        assert!(
            matches!(adopt(&places).unwrap(), Adopted::Missing(reason) if reason.contains("does not hold a token"))
        );
        assert!(places.staged_token().exists() && !places.token_file.exists());

        for _ in 0..2 {
            let token = Token::generate().unwrap();
            replace_private(&places.staged_token(), token.expose().as_bytes()).unwrap();
            assert_eq!(adopt(&places).unwrap(), Adopted::Taken);
            assert!(load(&places.token_file, Owners::Us).unwrap() == token);
            assert!(!places.staged_token().exists());
            assert_eq!(adopt(&places).unwrap(), Adopted::Have);
        }
        replace_private(&places.staged_token(), b"half").unwrap();
        assert!(matches!(adopt(&places).unwrap(), Adopted::Left(_)), "the old one stays in force");
    }

    #[test]
    fn one_that_lies_where_it_belongs_is_left_there() {
        let top = tempfile::tempdir().unwrap();
        let mut places = places(top.path());
        places.token_file = places.staged_token();
        assert!(matches!(adopt(&places).unwrap(), Adopted::Missing(_)));
        replace_private(&places.token_file, Token::generate().unwrap().expose().as_bytes()).unwrap();
        assert_eq!(adopt(&places).unwrap(), Adopted::Have);
        assert!(places.token_file.exists());
    }
}
