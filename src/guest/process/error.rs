//! Why a program could not be started.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a program could not be started: nothing ran.
#[derive(Debug, Error)]
pub(crate) enum SpawnError {
    /// There is no such interpreter here.
    #[error("{0}")]
    NoInterpreter(&'static str),
    /// The working directory is none.
    #[error("the working directory {} cannot be used: {cause}", path.display())]
    Cwd {
        /// The directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The system did not start it.
    #[error("{program} could not be started: {cause}")]
    Program {
        /// The program as asked for.
        program: String,
        /// Why.
        cause: io::Error,
    },
    /// The system gave no terminal.
    #[error("the guest gave no terminal: {0} (on Linux it needs /dev/ptmx and devpts on /dev/pts)")]
    Terminal(io::Error),
    /// The agent's own files or pipes failed.
    #[error("the files or pipes of the run could not be made: {0}")]
    Files(io::Error),
}
