//! A line of the examination: what was checked, how it ended, what to do about it.

use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, and should be seen to.
    Warning,
    /// Broken.
    Failed,
    /// Not made, because of an earlier one or because there is nothing to check.
    Skipped,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What is checked.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was seen.
    pub seen: String,
    /// What to do, where something is to be done.
    #[serde(skip)]
    pub(super) advice: Option<Advice>,
}

/// What is wrong and what to do, each to be read after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) what: String,
    pub(super) fix: String,
}

impl Advice {
    pub(super) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    pub(super) fn sentence(&self) -> String {
        format!("{}: {}", self.what, self.fix)
    }
}

impl Check {
    pub(super) fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, seen: seen.into(), advice: None }
    }

    pub(super) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, status: Status::Skipped, seen: why.into(), advice: None }
    }

    pub(super) fn failed(name: &'static str, seen: impl Into<String>, advice: Advice) -> Self {
        Self { name, status: Status::Failed, seen: seen.into(), advice: Some(advice) }
    }

    pub(super) fn warning(name: &'static str, seen: impl Into<String>, advice: Advice) -> Self {
        Self { name, status: Status::Warning, seen: seen.into(), advice: Some(advice) }
    }
}
