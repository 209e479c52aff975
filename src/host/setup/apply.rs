//! Writes what was planned.

use super::{plan::Plan, planned_file::Change};
use crate::{
    host::{Pod, Result},
    token::{ensure_private_dir, replace_private, stage},
};

/// Makes the folders, then the files that differ, each atomically; the settings last, so that a pod exists only when
/// all of it does.
pub(super) fn apply(plan: &Plan) -> Result<()> {
    for folder in &plan.folders {
        ensure_private_dir(folder)?;
    }
    for file in &plan.files {
        if file.path.ends_with(Pod::SETTINGS_FILE) {
            // a copy that shares its content with something else by a hard link is replaced too
            drop(stage(&plan.token, &plan.oem)?);
        }
        if file.change != Change::Unchanged {
            replace_private(&file.path, file.content.bytes())?;
        }
    }
    Ok(())
}
