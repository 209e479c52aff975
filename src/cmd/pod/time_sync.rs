//! `podlink pod time-sync`, and the same beside other commands.

use std::{convert::Infallible, time::Duration};

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, job, signal::Interrupts};
use crate::host::{
    EngineKind, Pod,
    time_sync::{self, SyncReport, SyncSettings},
};

/// Put the guest's clock right by this host's
///
/// Measures over several round trips by how much the guest's clock is off and, where that is more than the tolerance,
/// steps it; time-outs that run are not affected. `pod up`, `pod resume` and `pod wait-ready` do the same by themselves, and `pod events`
/// every five minutes.
/// The agent has to run as root, or as whoever may set the clock. The engine `local` has this host's clock: it is only
/// looked at.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod time-sync
  podlink pod time-sync --check                  look only; exit code 1 where it is off
  podlink pod time-sync --tolerance 50 --json")]
pub(super) struct TimeSyncArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Milliseconds that the clocks may differ by
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    tolerance: u64,
    /// Look, and leave the clock as it is
    #[arg(long)]
    check: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &TimeSyncArgs, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    let settings = SyncSettings {
        tolerance: Duration::from_millis(args.tolerance),
        step: !args.check && pod.settings().engine != EngineKind::Local,
        ..SyncSettings::DEFAULT
    };
    let report = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { time_sync::sync(&client, &settings).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&report);
    } else {
        printer.line(&sentence(&report));
    }
    Ok(if report.in_tolerance { Exit::SUCCESS } else { Exit::BROKEN })
}

fn sentence(report: &SyncReport) -> String {
    let found = off(report.offset_ms);
    let error = format!("known to {:.1} ms", report.error_ms);
    match report.stepped_ms {
        Some(_) => format!("the guest's clock was {found} and was stepped; {} now ({error})", off(report.left_ms)),
        None if report.in_tolerance => format!("the guest's clock is {found} and is left as it is ({error})"),
        None => format!("the guest's clock is {found}: too far ({error})"),
    }
}

fn off(ms: f64) -> String {
    let way = if ms < 0.0 { "behind" } else { "ahead" };
    if ms.abs() < 10_000.0 { format!("{:.1} ms {way}", ms.abs()) } else { format!("{:.1} s {way}", ms.abs() / 1000.0) }
}

/// Puts the clock right where the guest is ready, and says so on stderr where it had to; never a failure, but Ctrl-C.
pub(super) fn along(pod: &Pod, printer: Printer) -> Result<(), Failure> {
    let stepped = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { Ok::<_, Failure>(time_sync::sync_along(pod).await) }).await
    })?;
    if let Some(stepped) = stepped {
        printer.note(&format!("the guest's clock was {} and was stepped", off(-stepped)));
    }
    Ok(())
}

/// Keeps the clock right beside a command that runs for long, and says so on stderr where it had to.
pub(super) async fn keep(pod: &Pod, printer: Printer) -> Infallible {
    let say = |stepped: f64, drift: Option<f64>| {
        let drift = drift.map(|ppm| format!("; it drifts by {ppm:.0} millionths")).unwrap_or_default();
        printer.note(&format!("the guest's clock was {} and was stepped{drift}", off(-stepped)));
    };
    time_sync::keep_along(pod, time_sync::EVERY, say).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_said_in_a_sentence() {
        let report = SyncReport {
            offset_ms: -7_200_000.0,
            error_ms: 0.54,
            left_ms: 0.3,
            stepped_ms: Some(7_200_000.0),
            in_tolerance: true,
            drift_ppm: None,
            ntp_synchronized: None,
        };
        assert_eq!(
            sentence(&report),
            "the guest's clock was 7200.0 s behind and was stepped; 0.3 ms ahead now (known to 0.5 ms)"
        );
        let fine = SyncReport { offset_ms: 12.34, stepped_ms: None, ..report.clone() };
        assert_eq!(sentence(&fine), "the guest's clock is 12.3 ms ahead and is left as it is (known to 0.5 ms)");
        let far = SyncReport { stepped_ms: None, in_tolerance: false, ..report };
        assert_eq!(sentence(&far), "the guest's clock is 7200.0 s behind: too far (known to 0.5 ms)");
    }
}
