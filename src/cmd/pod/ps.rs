//! `podlink pod ps`.

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on, job,
    signal::Interrupts,
    table::{Table, age, bytes},
};
use crate::{
    host::terminal,
    protocol::{ProcessInfo, ProcessMode, ProcessState},
};

/// List what runs and waits in the guest on podlink's behalf
///
/// All calls: those of `pod exec` that somebody waits for, and detached jobs. The agent remembers ended ones for a
/// while. Scripts are shown by their digest, since they may hold secrets.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod ps
  podlink pod ps --all                        with those that have ended, and how
  podlink pod ps --json | jq -r '.processes[] | select(.mode == \"detached\") | .process_id'")]
pub(super) struct PsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Show those too that have ended
    #[arg(long, short)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &PsArgs, printer: Printer) -> Outcome {
    let (_, client) = job::client_of(&args.pod)?;
    let mut processes = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { client.processes().await.map_err(Failure::from) }).await
    })?;
    processes.retain(|info| args.all || info.state != ProcessState::Exited);
    if printer.is_json() {
        printer.json(&serde_json::json!({ "processes": processes }));
        return Ok(Exit::SUCCESS);
    }
    if processes.is_empty() {
        let all = if args.all { "" } else { "; `--all` shows what has ended" };
        printer.note(&format!("nothing runs or waits{all}"));
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new(&["id", "state", "mode", "age", "pid", "session", "output", "command"], &[3, 4, 6]);
    for info in &processes {
        table.row([
            info.process_id.clone(),
            state(info),
            mode(info),
            age(info.started_at.as_ref().unwrap_or(&info.created_at)),
            info.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            info.session.clone().unwrap_or_else(|| "-".to_owned()),
            bytes(info.output_bytes),
            job::command(info),
        ]);
    }
    table.print(printer, terminal::stdout_width());
    Ok(Exit::SUCCESS)
}

/// How far it is, and how it ended.
fn state(info: &ProcessInfo) -> String {
    match (info.state, &info.result, &info.error) {
        (ProcessState::Queued, ..) => "queued".to_owned(),
        (ProcessState::Running, ..) => "running".to_owned(),
        (ProcessState::Exited, Some(result), _) if result.timed_out => "timed out".to_owned(),
        (ProcessState::Exited, Some(result), _) => format!("exited {}", result.rc),
        (ProcessState::Exited, None, Some(error)) => error.error.as_str().replace('_', " "),
        (ProcessState::Exited, None, None) => "exited".to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn mode(info: &ProcessInfo) -> String {
    let mode = match info.mode {
        ProcessMode::Buffered => "buffered",
        ProcessMode::Streamed => "streamed",
        ProcessMode::Attached => "attached",
        ProcessMode::Detached => "detached",
        _ => "unknown",
    };
    format!("{mode}{}", if info.pty { " -t" } else { "" })
}
