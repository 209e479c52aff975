//! From the evidence to a line for each check and one sentence: a function of the evidence alone.

use serde::Serialize;

use super::{
    Evidence, agent, cause,
    check::{Check, Status},
    engine, files, legs, port,
};

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
    let cause = cause::cause(evidence);
    let checks: Vec<Check> = [
        engine::checks(evidence),
        files::checks(evidence),
        legs::checks(evidence),
        port::checks(evidence, cause.clone()),
        agent::checks(evidence),
    ]
    .into_iter()
    .flatten()
    .collect();
    let checks = in_order(checks);
    let first =
        |status: Status| checks.iter().filter(|check| check.status == status).find_map(|check| check.advice.clone());
    let broken = cause.or_else(|| first(Status::Failed));
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
