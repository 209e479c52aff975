//! `podlink pod wait`.

use std::time::Duration;

use serde::Serialize;

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on, job, passing::conclude, seconds, signal::Interrupts,
};
use crate::{
    host::{Error, ErrorKind},
    protocol::ExecResult,
};

/// Wait for jobs to end, and end with their exit code
///
/// Prints each job's id and exit code, in the order given. With several jobs the exit code is that of the last of them
/// that failed, or 0 where none did, as `pipefail` has it. A job that was killed from outside, is lost with its agent, or
/// is not known, makes it 125, and the others are waited for still.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  id=$(podlink pod exec --detach 'make -j8') && podlink pod wait \"$id\"
  podlink pod wait p-3f2a p-77c1                 ids may be shortened
  podlink pod wait --timeout 60 p-3f2a || echo \"not yet, or failed: $?\"")]
pub(super) struct WaitArgs {
    /// The jobs' ids, or the beginnings of them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    pod: PodChoice,
    /// End with exit code 10 after this many seconds; the jobs run on
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<f64>,
    /// Print one JSON object a job, a line each
    #[arg(long)]
    pub(super) json: bool,
}

/// A job that did not end by itself, or is not known.
#[derive(Debug, Serialize)]
struct Failed<'a> {
    process_id: &'a str,
    #[serde(flatten)]
    failure: Failure,
}

fn failed(id: &str, error: Error, printer: Printer) -> Exit {
    let failure = Failure::from(error).exiting(Exit::FAILED);
    if printer.is_json() {
        printer.json(&Failed { process_id: id, failure });
        return Exit::FAILED;
    }
    failure.about(id).report(printer)
}

pub(super) fn run(args: &WaitArgs, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    let waiting = async {
        let mut exit = Exit::SUCCESS;
        let known = client.processes().await.map_err(Failure::from)?;
        for given in &args.ids {
            let named = job::one(&known, given, &pod);
            let id = named.as_ref().map_or_else(|_| given.clone(), |info| info.process_id.clone());
            let ended = match named {
                Ok(info) => client.job(&info.process_id).wait().await,
                Err(error) => Err(error),
            };
            let this = match ended {
                Ok(result) => {
                    if printer.is_json() {
                        // an agent of another time may not name it there
                        printer.json(&ExecResult { process_id: id, ..result.clone() });
                    } else {
                        printer.line(&format!("{id} {}", result.rc));
                    }
                    conclude(&result, printer)
                }
                // said at once, whatever becomes of the others
                Err(error) => failed(&id, error, printer),
            };
            if this != Exit::SUCCESS {
                exit = this;
            }
        }
        Ok(exit)
    };
    let limit = async {
        match args.timeout {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let waiting = async {
            tokio::select! {
                ended = waiting => ended,
                () = limit => Err(Error::new(ErrorKind::WaitTimedOut, "the jobs have not ended in time")
                    .with_hint(format!("they run on; wait again, or see `podlink pod ps{}`", pod.name().flag()))
                    .into()),
            }
        };
        interrupts.or(waiting).await
    })
}
