//! What the agent tells of its installation, read from the disk.

use std::path::{Path, PathBuf};

use super::{
    places::{self, Places},
    record::{Record, ServeSettings},
};
use crate::protocol::{InstallReport, RunMode, StepState};

/// The installation that an agent belongs to.
#[derive(Debug, Clone)]
pub struct Installation {
    state: PathBuf,
    places: Places,
    serve: ServeSettings,
    mode: RunMode,
}

impl Installation {
    /// The one whose state lies in this folder; `None` where there is none.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn find(state: &Path) -> anyhow::Result<Option<Self>> {
        Ok(Record::load(state)?.map(|record| Self {
            state: state.to_owned(),
            places: record.places(state),
            serve: record.serve().clone(),
            mode: record.mode(),
        }))
    }

    /// What its agent is started with.
    pub fn serve(&self) -> &ServeSettings {
        &self.serve
    }

    /// How its agent is started.
    pub fn mode(&self) -> RunMode {
        self.mode
    }

    /// The folder of its state.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its agent's log.
    pub fn agent_log(&self) -> PathBuf {
        places::agent_log(&self.state)
    }

    /// The log of its steps.
    pub fn install_log(&self) -> PathBuf {
        places::log_file(&self.state)
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Whether all that is required is done.
    pub(super) fn is_complete(&self) -> bool {
        places::done_file(&self.state).exists()
    }

    /// What became of its steps; `None` where that cannot be read.
    pub(in crate::guest) fn report(&self) -> Option<InstallReport> {
        let record = Record::load(&self.state).ok().flatten()?;
        Some(record.report(self.is_complete()))
    }

    /// What is still to be waited for, or why it is waited for in vain.
    pub(in crate::guest) fn gate(&self) -> Result<Vec<String>, String> {
        if self.is_complete() {
            return Ok(Vec::new());
        }
        let Some(report) = self.report() else { return Ok(vec!["install".to_owned()]) };
        let missing = report.steps.iter().filter(|step| step.required && step.state != StepState::Done);
        if let Some(failed) = missing.clone().find(|step| step.state == StepState::Failed) {
            return Err(format!("{}: {}", failed.name, failed.reason.as_deref().unwrap_or("no reason given")));
        }
        // what runs is what is waited for; else what comes next
        let running = report.steps.iter().find(|step| step.state == StepState::Running);
        let step = running.or_else(|| missing.clone().next());
        Ok(vec![step.map_or_else(|| "install.done".to_owned(), |step| step.name.clone())])
    }
}
