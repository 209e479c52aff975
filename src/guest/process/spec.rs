//! What is to be run, decoded and checked.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::ring::Ring;
use crate::protocol::Shell;

/// A program to run.
#[derive(Debug)]
pub(crate) enum Program {
    /// A script for an interpreter.
    Script {
        /// The interpreter.
        shell: Shell,
        /// The source, without a byte-order mark.
        source: Vec<u8>,
    },
    /// A program and its arguments; never empty.
    Argv(Vec<String>),
}

/// The variables that the program sees.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Start from nothing rather than from the agent's own.
    pub clear: bool,
    /// Added to that.
    pub add: BTreeMap<String, String>,
}

/// What the program reads.
#[derive(Debug)]
pub(crate) struct Stdin {
    /// These bytes.
    pub bytes: Vec<u8>,
    /// Then whatever comes, until it is closed.
    pub open: bool,
}

/// A terminal that the program runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// Lines, at least 1.
    pub rows: u16,
    /// Columns, at least 1.
    pub cols: u16,
    /// What `TERM` says.
    pub term: String,
}

/// Where the output goes.
#[derive(Debug, Clone)]
pub(crate) enum Output {
    /// It is kept, up to so many bytes of each stream.
    Keep(usize),
    /// Into a ring, to be read from there.
    Ring(Arc<Ring>),
}

/// All of one run.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The run's name; unguessable, since it marks the run's processes.
    pub process_id: String,
    /// What to run.
    pub program: Program,
    /// Where; the account's home where absent.
    pub cwd: Option<PathBuf>,
    /// With which variables.
    pub environment: Environment,
    /// What it reads.
    pub stdin: Stdin,
    /// In a terminal of its own.
    pub terminal: Option<Terminal>,
    /// What it starts may leave its tree where it asks for that, which only Windows has a way for.
    pub allow_breakaway: bool,
    /// When it is killed; never where absent.
    pub timeout: Option<Duration>,
    /// Where its output goes.
    pub output: Output,
}

impl Spec {
    /// The script that is to be run, where it is one.
    pub(crate) fn script(&self) -> Option<&[u8]> {
        match &self.program {
            Program::Script { source, .. } => Some(source),
            Program::Argv(_) => None,
        }
    }

    /// Bytes of script and input that it holds in memory.
    pub(crate) fn input_len(&self) -> usize {
        let script = match &self.program {
            Program::Script { source, .. } => source.len(),
            Program::Argv(argv) => argv.iter().map(String::len).sum(),
        };
        script + self.stdin.bytes.len()
    }
}
