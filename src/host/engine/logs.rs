//! A container's log, as its engine keeps it.

use std::path::PathBuf;

use super::{EngineSettings, container, local, run::Invocation};
use crate::host::{EngineKind, Pod, Result};

/// The call that prints a container's log, each line behind the time at which it was said.
pub(in crate::host) async fn container_log(
    pod: &Pod,
    follow: bool,
    tail: Option<u32>,
    settings: &EngineSettings,
) -> Result<Invocation> {
    container::logs(pod, follow, tail, true, settings).await
}

/// Where a local agent's log is.
pub(in crate::host) fn local_log_file(pod: &Pod) -> PathBuf {
    local::log_file(pod)
}

/// The last lines of a container's log, for the eye; none for a local pod.
///
/// # Errors
/// When there is no container or the engine fails.
pub async fn last_log_lines(pod: &Pod, count: u32, settings: &EngineSettings) -> Result<Vec<String>> {
    if pod.settings().engine == EngineKind::Local {
        return Ok(Vec::new());
    }
    let finished = container::logs(pod, false, Some(count), false, settings).await?.run_to_success().await?;
    // docker keeps the two streams apart, and what is last cannot be told
    let lines = [&finished.stdout, &finished.stderr].into_iter().flat_map(|text| text.lines());
    // a progress bar draws over itself: what stands after the last return is what one would see
    let seen = lines.map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default().trim().to_owned());
    Ok(seen.filter(|line| !line.is_empty()).collect())
}
