//! Values that `podlink agent serve` is given.

use std::str::FromStr;

use anyhow::Context as _;

use crate::protocol::RunMode;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// What starts the agent.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Mode {
    Manual,
    Session,
    Service,
}

impl From<Mode> for RunMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Manual => Self::Manual,
            Mode::Session => Self::Session,
            Mode::Service => Self::Service,
        }
    }
}

/// A count.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

/// Words of the installation's record, as the flags take them.
pub(super) fn parsed<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    words: &[String],
) -> anyhow::Result<Vec<T>> {
    let parse = |word: &String| word.parse().with_context(|| format!("the installation's record says {word}"));
    words.iter().map(parse).collect()
}
