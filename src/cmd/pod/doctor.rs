//! `podlink pod doctor`.

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts};
use crate::{
    cmd::output::printable,
    host::{
        Home,
        doctor::{self, DoctorSettings, Status},
    },
};

/// Find out what is broken between this command and the guest
///
/// Looks at each leg of the way in order and ends with one sentence: what is broken, and the line to change or the
/// command to run. Changes nothing, and takes at most some 15 s. Codes: 0 all is well, 1 something is broken, 125 the
/// doctor itself could not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod doctor
  podlink pod doctor --pod lab --json               {ok, checks: [{name, status, seen}], verdict, fix}
  podlink pod doctor --json | jq -r .fix            only what to do")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &DoctorArgs, printer: Printer) -> Outcome {
    let home = Home::from_env()?;
    let pod = args.pod.load()?;
    let report = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts
            .or(async { doctor::examine(&home, &pod, &DoctorSettings::DEFAULT).await.map_err(Failure::from) })
            .await
    })?;
    if printer.is_json() {
        printer.json(&report);
    } else {
        for check in &report.checks {
            let symbol = match check.status {
                Status::Ok => '✓',
                Status::Warning => '!',
                Status::Failed => '✗',
                Status::Skipped => '-',
            };
            printer.line(&format!("{symbol} {:<10} {}", check.name, one_line(&check.seen)));
        }
        printer.line(&one_line(&report.verdict));
    }
    Ok(if report.ok { Exit::SUCCESS } else { Exit::BROKEN })
}

/// What engines and guests say may hold line ends and worse.
fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}
