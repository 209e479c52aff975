//! What is to be run, decoded and checked.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

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
    /// What it reads; nothing where absent.
    pub stdin: Option<Vec<u8>>,
    /// When it is killed.
    pub timeout: Duration,
    /// Bytes kept of each stream.
    pub max_output: usize,
}

impl Spec {
    /// Bytes of script and input that it holds in memory.
    pub(crate) fn input_len(&self) -> usize {
        let script = match &self.program {
            Program::Script { source, .. } => source.len(),
            Program::Argv(argv) => argv.iter().map(String::len).sum(),
        };
        script + self.stdin.as_ref().map_or(0, Vec::len)
    }
}
