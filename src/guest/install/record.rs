//! What is known of an installation, on disk.

use std::{
    io::{ErrorKind, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{places, places::Places};
use crate::{
    protocol::{InstallReport, InstallStep, RunMode, StepState},
    token::{TokenError, replace_private},
};

/// More than a record ever takes.
const MAX_BYTES: u64 = 1 << 20;

/// How long a reader is waited for that keeps the file from being replaced (Windows).
const REPLACE_PATIENCE: Duration = Duration::from_secs(5);

/// What the agent is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its copy of the token.
    pub token_file: PathBuf,
    /// Names besides loopback's that it may be called by.
    #[serde(default)]
    pub allow_host: Vec<String>,
    /// Networks that it lets in; its default where empty.
    #[serde(default)]
    pub allow_peer: Vec<String>,
}

/// A hook that was found when the installation began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hook {
    /// The file's name.
    pub(super) name: String,
    /// Of its content: one that has run is not run again, and one that has changed meanwhile is not run at all.
    pub(super) sha256: String,
    /// How often it was begun.
    #[serde(default)]
    pub(super) begun: u32,
}

/// All that is known of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version that is installed.
    pub(super) version: String,
    /// How the agent is started.
    pub(super) mode: RunMode,
    /// What it is started with.
    pub(super) serve: ServeSettings,
    pub(super) bundle: PathBuf,
    pub(super) exe: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<PathBuf>,
    /// Milliseconds that a hook may take.
    pub(super) hook_timeout_ms: u64,
    pub(super) steps: Vec<InstallStep>,
    pub(super) hooks: Vec<Hook>,
}

/// A step's name, from its hook's.
pub(super) fn hook_step(name: &str) -> String {
    format!("hook {name}")
}

impl Record {
    /// Reads the one in this folder; `None` where there is no installation.
    ///
    /// # Errors
    /// When the file cannot be read, or is none of ours.
    pub fn load(state: &Path) -> anyhow::Result<Option<Self>> {
        let path = places::record_file(state);
        let mut text = Vec::new();
        match fs_err::File::open(&path) {
            Ok(file) => file.take(MAX_BYTES).read_to_end(&mut text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} is no record of an installation; remove it and run `podlink agent install` again",
                path.display()
            )
        })?;
        Ok(Some(record))
    }

    /// Writes it, in the place of the one before.
    pub(super) fn save(&self, state: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("the installation cannot be written down")?;
        text.push('\n');
        let deadline = Instant::now() + REPLACE_PATIENCE;
        loop {
            match replace_private(&places::record_file(state), text.as_bytes()) {
                // Windows refuses for as long as somebody has it open, who only reads and is soon done
                Err(TokenError::Io(error))
                    if error.kind() == ErrorKind::PermissionDenied && cfg_retries() && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                saved => return Ok(saved?),
            }
        }
    }

    /// What the agent is started with.
    pub fn serve(&self) -> &ServeSettings {
        &self.serve
    }

    /// How the agent is started.
    pub fn mode(&self) -> RunMode {
        self.mode
    }

    /// Where everything lies; `state` is where the record was found.
    pub fn places(&self, state: &Path) -> Places {
        Places {
            bundle: self.bundle.clone(),
            exe: self.exe.clone(),
            state: state.to_owned(),
            token_file: self.serve.token_file.clone(),
            root: self.root.clone(),
        }
    }

    pub(super) fn hook_timeout(&self) -> Duration {
        Duration::from_millis(self.hook_timeout_ms)
    }

    pub(super) fn step(&self, name: &str) -> Option<&InstallStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Sets a step's state; one that is not known is put last.
    pub(super) fn set(&mut self, name: &str, required: bool, state: StepState, reason: Option<String>) {
        let step = InstallStep { name: name.to_owned(), state, required, reason, at: Some(now()) };
        match self.steps.iter_mut().find(|step| step.name == name) {
            Some(known) => *known = step,
            None => self.steps.push(step),
        }
    }

    /// The required steps that are not done, in order.
    pub(super) fn missing(&self) -> impl Iterator<Item = &InstallStep> {
        self.steps.iter().filter(|step| step.required && step.state != StepState::Done)
    }

    /// The first required step that has failed.
    pub(super) fn failure(&self) -> Option<&InstallStep> {
        self.missing().find(|step| step.state == StepState::Failed)
    }

    /// For callers; `complete` is what the gate says.
    pub(super) fn report(&self, complete: bool) -> InstallReport {
        InstallReport { complete, mode: self.mode, version: self.version.clone(), steps: self.steps.clone() }
    }
}

/// Whether replacing a file can fail for a moment alone: it is asked of the error, which Unix means for good.
const fn cfg_retries() -> bool {
    super::super::sys::REPLACING_IS_RETRIED
}

/// RFC 3339, to the second.
pub(super) fn now() -> String {
    let second = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(second).unwrap_or_default().to_string()
}
