//! `podlink pod sessions`.

use serde::Serialize;

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on, exec, job,
    signal::Interrupts,
    table::{Table, age},
};
use crate::host::{Error, ErrorKind, Pod, terminal};

/// Show sessions: calls that run one after the other, what runs and what waits
///
/// A session is there while something of it runs or waits; `podlink pod exec --session NAME` begins it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod sessions
  podlink pod sessions --end build               end what runs and what waits in this one
  podlink pod kill p-3f2a                        only one call of it, whether it runs or waits")]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// End all calls of this session, running and waiting ones
    #[arg(long, value_name = "NAME", value_parser = exec::session)]
    end: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct EndedJson<'a> {
    session: &'a str,
    ended: u64,
}

fn ending_failed(error: Error, session: &str, pod: &Pod) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    Error::new(ErrorKind::NotFound, format!("nothing runs or waits in a session {session}"))
        .with_hint(format!("`podlink pod sessions{}` lists those that there are", pod.name().flag()))
        .into()
}

pub(super) fn run(args: &SessionsArgs, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    if let Some(session) = &args.end {
        let ended = block_on(async {
            let mut interrupts = Interrupts::catch()?;
            interrupts
                .or(async { client.end_session(session).await.map_err(|error| ending_failed(error, session, &pod)) })
                .await
        })?;
        if printer.is_json() {
            printer.json(&EndedJson { session, ended });
        } else {
            printer.line(&format!("session {session} is ended: {ended} call{}", if ended == 1 { "" } else { "s" }));
        }
        return Ok(Exit::SUCCESS);
    }
    let sessions = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { client.sessions().await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "sessions": sessions }));
        return Ok(Exit::SUCCESS);
    }
    if sessions.is_empty() {
        printer.note("nothing runs or waits in any session");
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new(&["session", "place", "id", "age", "command"], &[1, 3]);
    for session in &sessions {
        let running = session.running.iter().map(|info| ("runs".to_owned(), info));
        let queued = session.queued.iter().zip(1..).map(|(info, place): (_, u32)| (place.to_string(), info));
        for (place, info) in running.chain(queued) {
            table.row([
                session.name.clone(),
                place,
                info.process_id.clone(),
                age(info.started_at.as_ref().unwrap_or(&info.created_at)),
                job::command(info),
            ]);
        }
    }
    table.print(printer, terminal::stdout_width());
    Ok(Exit::SUCCESS)
}
