//! From the evidence to a line for each check and one sentence: a function of the evidence alone.

use serde::Serialize;

use super::{Evidence, agent, cause, engine, files, legs, port};

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

    fn sentence(&self) -> String {
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

/// The whole examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether nothing is broken.
    pub ok: bool,
    /// The checks in the order of the way to the guest.
    pub checks: Vec<Check>,
    /// What is broken and what to do, in one sentence.
    pub verdict: String,
    /// What to do, alone.
    pub fix: Option<String>,
}

/// Judges the evidence.
///
/// What keeps calls from being served is named before what is merely not as it should be.
pub fn judge(evidence: &Evidence) -> Report {
    let checks: Vec<Check> = [
        engine::checks(evidence),
        files::checks(evidence),
        legs::checks(evidence),
        port::checks(evidence),
        agent::checks(evidence),
    ]
    .into_iter()
    .flatten()
    .collect();
    let checks = in_order(checks);
    let first =
        |status: Status| checks.iter().filter(|check| check.status == status).find_map(|check| check.advice.clone());
    let broken = cause::cause(evidence).or_else(|| first(Status::Failed));
    let name = &evidence.pod.name;
    let (ok, verdict, fix) = match (broken, first(Status::Warning)) {
        (Some(advice), _) => (false, advice.sentence(), Some(advice.fix)),
        (None, Some(advice)) => (true, format!("the pod {name} works, but {}", advice.sentence()), Some(advice.fix)),
        (None, None) => (true, format!("all is well: the pod {name} serves calls"), None),
    };
    Report { ok, checks, verdict, fix }
}

/// The order of the way from this host to the guest.
const ORDER: [&str; 12] = [
    "engine",
    "compose",
    "files",
    "legs",
    "owner",
    "container",
    "published",
    "port",
    "version",
    "token",
    "exec",
    "clock",
];

fn in_order(mut checks: Vec<Check>) -> Vec<Check> {
    checks.sort_by_key(|check| ORDER.iter().position(|name| *name == check.name));
    checks
}
