//! Calls of the guest by their ids, which may be shortened.

use super::{Failure, PodChoice};
use crate::{
    host::{AgentClient, AgentKind, ClientSettings, Error, ErrorKind, Pod},
    protocol::ProcessInfo,
};

/// With what every id begins.
pub(super) const PREFIX: &str = "p-";
/// As many ids are named where one is meant and several fit.
const NAMED: usize = 4;

/// The pod, and a client of its agent, which has to be one that knows jobs.
pub(super) fn client_of(choice: &PodChoice) -> Result<(Pod, AgentClient), Failure> {
    let pod = choice.load()?;
    if pod.settings().agent == AgentKind::Winpodx {
        let limits = AgentKind::Winpodx.limits().unwrap_or_default();
        return Err(Error::new(ErrorKind::Unsupported, limits)
            .with_hint("put podlink's own agent into the guest")
            .into());
    }
    let client = AgentClient::for_pod(&pod, ClientSettings::DEFAULT)?;
    Ok((pod, client))
}

/// The calls that these ids, whole or shortened, name.
pub(super) async fn resolve(client: &AgentClient, pod: &Pod, given: &[String]) -> Result<Vec<ProcessInfo>, Error> {
    let known = client.processes().await?;
    given.iter().map(|given| one(&known, given, pod)).collect()
}

/// The call that this id, whole or shortened, names.
pub(super) fn one(known: &[ProcessInfo], given: &str, pod: &Pod) -> Result<ProcessInfo, Error> {
    if let Some(info) = known.iter().find(|info| info.process_id == given) {
        return Ok(info.clone());
    }
    if given.trim_start_matches(PREFIX).is_empty() {
        // an unset variable of a script would name the one job that there is
        let detail = format!("{given:?} names no job");
        return Err(Error::new(ErrorKind::Rejected, detail).with_hint(format!(
            "give an id, or the beginning of one; `podlink pod ps --pod {}` lists them",
            pod.name()
        )));
    }
    let whole = if given.starts_with(PREFIX) { given.to_owned() } else { format!("{PREFIX}{given}") };
    let mut fitting = known.iter().filter(|info| info.process_id.starts_with(&whole));
    let hint = format!("`podlink pod ps --all{}` lists those that there are", pod.name().flag());
    let Some(first) = fitting.next() else {
        let detail = format!(
            "the agent knows no job whose id begins with {given:?}; it forgets ended ones after a while, and all when it is started anew"
        );
        return Err(Error::new(ErrorKind::NotFound, detail).with_hint(hint));
    };
    let others: Vec<&str> = fitting.map(|info| info.process_id.as_str()).collect();
    if others.is_empty() {
        return Ok(first.clone());
    }
    let mut names = vec![first.process_id.as_str()];
    names.extend(others.iter().take(NAMED - 1));
    let more = if others.len() >= NAMED { ", …" } else { "" };
    let detail = format!("{given:?} is the beginning of {} ids: {}{more}", others.len() + 1, names.join(", "));
    Err(Error::new(ErrorKind::Rejected, detail).with_hint("give more of the id"))
}

/// What a call runs, for the eye: a script only by its digest, since it may hold secrets.
pub(super) fn command(info: &ProcessInfo) -> String {
    match (&info.argv, &info.script_sha256) {
        (Some(argv), _) => argv.join(" "),
        (None, Some(digest)) => format!("script {}", digest.get(..12).unwrap_or(digest)),
        (None, None) => "-".to_owned(),
    }
}
