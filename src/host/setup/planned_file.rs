//! A file that a setup will write: what it is to hold, and what stands there now.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::{
    host::{Error, ErrorKind, Result},
    token::{self, Owners, TokenError},
};

/// One file.
#[derive(Debug)]
pub struct PlannedFile {
    /// Where.
    pub path: PathBuf,
    /// What becomes of it.
    pub change: Change,
    /// The difference in unified form, without secrets; empty where nothing changes.
    pub diff: String,
    pub(super) content: Content,
}

/// What is written; shown by nothing.
pub(super) enum Content {
    Text(Zeroizing<String>),
    Bytes(Vec<u8>),
}

impl Content {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Content(…)")
    }
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was missing.
    Created,
    /// It was different.
    Changed,
    /// It is as it should be, and is not touched.
    Unchanged,
}

impl Change {
    /// As it stands in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What a file of ours holds, up to one byte more than `max`; `None` where there is none.
pub(super) fn read_bytes(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let file = match token::open_private(path, Owners::Us) {
        Ok(file) => file,
        Err(TokenError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::new(ErrorKind::File, "a file in the pod's folder is not as it must be")
                .with_source(error)
                .with_hint("look who put it there, remove it, and run setup again"));
        }
    };
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::File, format!("could not read {}", path.display())).with_source(error)
    })?;
    Ok(Some(bytes))
}
