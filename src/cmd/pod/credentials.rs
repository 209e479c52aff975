//! `podlink pod credentials`.

use serde::Serialize;

use super::{Exit, Outcome, PodChoice, Printer};
use crate::host::{EngineKind, Error, ErrorKind};

/// Show the guest's user and password
///
/// For remote desktop and the guest's own logon. No other command shows the password.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod credentials
  podlink pod credentials --json | jq -r .password")]
pub(super) struct CredentialsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct CredentialsJson<'a> {
    pod: &'a str,
    user: &'a str,
    password: &'a str,
}

pub(super) fn run(args: &CredentialsArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let Some(machine) = pod.settings().machine.as_ref().filter(|_| pod.settings().engine != EngineKind::Local) else {
        let detail = format!("the pod {} is local: its scripts run as this user, and it has no password", pod.name());
        return Err(Error::new(ErrorKind::Settings, detail).into());
    };
    let (user, password) = (machine.user.as_str(), machine.password.expose());
    if printer.is_json() {
        printer.json(&CredentialsJson { pod: pod.name().as_str(), user, password });
    } else {
        printer.line(&format!("user      {user}"));
        printer.line(&format!("password  {password}"));
    }
    Ok(Exit::SUCCESS)
}
