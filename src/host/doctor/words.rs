//! The commands that doctor names, for the pod that it looks at.

use super::Evidence;

/// `podlink pod COMMAND` for this pod.
pub(super) fn command(evidence: &Evidence, command: &str) -> String {
    format!("`podlink pod {command} --pod {}`", evidence.pod.name)
}

/// `podlink setup` for this pod.
pub(super) fn setup(evidence: &Evidence, more: &str) -> String {
    format!("`podlink setup --pod {}{more}`", evidence.pod.name)
}

/// How a changed file becomes the container's.
pub(super) fn remake(evidence: &Evidence) -> String {
    format!("{} and {}", command(evidence, "down"), command(evidence, "up"))
}
