//! `podlink pod logs`.

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on, job,
    passing::{Halt, Passing},
    signal::Interrupts,
};
use crate::host::{
    engine::{self, EngineSettings, LogRequest, LogStream},
    terminal,
};

/// Show a pod's log: its container's, or its agent's where the engine is local; or a job's output
///
/// The log is passed on as it is. It is for the eye: whether the guest is ready only `podlink pod wait-ready` tells.
///
/// With a job's id (`p-…`) it is what the job wrote, from the oldest byte that is still kept: stdout on stdout, stderr
/// on stderr, exit code 0 whatever the job's is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod logs --tail 20
  podlink pod logs -f                  go on until the pod ends, or Ctrl-C
  podlink pod logs p-3f2a              what a job has written; its id may be shortened
  podlink pod logs -f --offset 4096 p-3f2a")]
pub(super) struct LogsArgs {
    /// A job's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    pod: PodChoice,
    /// Go on with what is said from now on, until the pod ends, or the job
    #[arg(long, short)]
    follow: bool,
    /// No more than this many of the last lines
    #[arg(long, value_name = "LINES", conflicts_with = "id")]
    tail: Option<u32>,
    /// Begin at this byte of the job's output
    #[arg(long, value_name = "N", requires = "id")]
    offset: Option<u64>,
}

pub(super) fn run(args: &LogsArgs, printer: Printer) -> Outcome {
    match &args.id {
        Some(id) if id.starts_with(job::PREFIX) => of_job(args, id, printer),
        Some(id) => Err(Failure::usage(format!(
            "{id:?} is no job's id, which begins with {}; another pod's log is `podlink pod logs --pod {id}`",
            job::PREFIX
        ))),
        None => of_pod(args, printer),
    }
}

fn of_pod(args: &LogsArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let request = LogRequest { follow: args.follow, tail: args.tail };
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let passing = async {
            let pass = |stream, bytes: &[u8]| match stream {
                LogStream::Stdout => printer.bytes(bytes),
                LogStream::Stderr => printer.error_bytes(bytes),
            };
            engine::logs(&pod, request, &EngineSettings::DEFAULT, pass).await.map_err(Failure::from)
        };
        interrupts.or(passing).await
    })?;
    Ok(Exit::SUCCESS)
}

fn of_job(args: &LogsArgs, id: &String, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let mut passing = Passing::new(printer)?;
        let showing = async {
            let info = job::resolve(&client, &pod, std::slice::from_ref(id)).await?.remove(0);
            let mut stream = client.job(&info.process_id).output(args.offset, args.follow).await?;
            match passing.all_of(&mut stream).await {
                // it was ended, or failed: that is no part of its output
                Err(Halt::Failed(error)) if error.answer().is_some_and(|answer| answer.process_id.is_some()) => Ok(()),
                ended => ended.map(drop),
            }
        };
        let shown = tokio::select! {
            shown = showing => shown,
            exit = interrupts.next() => Err(Halt::Interrupted(exit)),
            // a job that says nothing would keep a command that nobody listens to
            closed = terminal::stdout_closed() => Err(closed.map_or_else(Halt::Failed, |()| Halt::Unread)),
        };
        match shown {
            Ok(()) => Ok(passing.exit(Exit::SUCCESS)),
            Err(halt) => halt.end("interrupted"),
        }
    })
}
