//! Makes a pod's folder: everything is decided and checked in memory, then written file by file, `pod.yaml` last.
//!
//! Implementation note: one lock a home, held from the first look to the last write. Two setups at once, also of two
//! pods, then end with one token each and with ports that differ.

mod apply;
mod diff;
mod emit;
mod guest_exe;
mod machine_check;
mod plan;
mod planned_file;
mod port_choice;
mod request;
mod resolve;
mod staging;

use std::{os::unix::fs::DirBuilderExt as _, time::Duration};

pub use emit::{Emitted, Form, emit};
pub use guest_exe::{GUEST_EXE, GuestExe, INSTALL_BAT};
pub use plan::{Plan, TokenFate};
pub use planned_file::{Change, PlannedFile};
pub use request::{EngineChoice, SetupRequest, read_password};
pub use staging::agent_fault;

use super::{Error, ErrorKind, Home, PodName, Result, engine::EngineSettings, lock};

/// Deadlines of a setup.
#[derive(Debug, Clone)]
pub struct SetupSettings {
    /// How long another setup is waited for.
    pub lock: Duration,
    /// What is asked of engines.
    pub engine: EngineSettings,
}

impl SetupSettings {
    /// As the command uses them.
    pub const DEFAULT: Self = Self { lock: Duration::from_secs(30), engine: EngineSettings::DEFAULT };
}

/// Makes or changes a pod, and tells what was written.
///
/// # Errors
/// When a setting is wrong, a port is taken, an engine is missing, or a file is not ours or cannot be written. Nothing
/// is written before all of it is decided.
pub async fn run(home: &Home, name: &PodName, request: &SetupRequest, settings: &SetupSettings) -> Result<Plan> {
    // a home that is there is left as it is: it may hold more than pods
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.config()).map_err(|error| {
        Error::new(ErrorKind::File, format!("could not make the folder {}", home.config().display())).with_source(error)
    })?;
    let _lock = lock::take(&home.config().join(".lock"), "another setup", settings.lock).await?;
    let plan = plan::make(home, name, request, settings).await?;
    apply::apply(&plan)?;
    Ok(plan)
}

/// Tells what [`run`] would write, and writes nothing.
///
/// # Errors
/// As [`run`], as far as nothing need be written to find out.
pub async fn dry_run(home: &Home, name: &PodName, request: &SetupRequest, settings: &SetupSettings) -> Result<Plan> {
    plan::make(home, name, request, settings).await
}
