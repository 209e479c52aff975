//! `podlink pod attach`.

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on,
    detach_keys::DetachKeys,
    interactive::{self, Console, Stdin},
    job,
    passing::{Halt, Passing, conclude},
    signal::Interrupts,
};
use crate::host::terminal;

/// Come back to a job: see what it says, type what it reads
///
/// Begins with the oldest output that is still kept, or at an offset. Ends with the job's exit code when it ends. A job
/// with a terminal gets all keys, but for the detach keys (ctrl-p ctrl-q), which leave it running; from one without,
/// Ctrl-C does. A connection that breaks is made anew. How much of the oldest output is no longer kept is said on stderr;
/// output that is lost after that, or behind --offset, makes the exit code 125.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod attach p-3f2a                      an id may be shortened
  podlink pod attach --no-stdin --offset 4096 p-3f2a
  id=$(podlink pod exec -dt -- vim notes.txt) && podlink pod attach \"$id\"")]
pub(super) struct AttachArgs {
    /// The job's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    pod: PodChoice,
    /// Keys that leave it running: characters or ctrl-X, with commas between, or `none`
    #[arg(long, value_name = "KEYS", default_value = DetachKeys::DEFAULT)]
    detach_keys: DetachKeys,
    /// Begin at this byte of its output
    #[arg(long, value_name = "N")]
    offset: Option<u64>,
    /// Do not pass this command's stdin on
    #[arg(long)]
    no_stdin: bool,
}

pub(super) fn run(args: &AttachArgs, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let mut passing = Passing::new(printer)?;
        let attaching = async {
            let info = job::resolve(&client, &pod, std::slice::from_ref(&args.id)).await?.remove(0);
            let attached = client.attach_to(&info.process_id, Some(args.offset.unwrap_or(0))).await?;
            Ok((info, attached))
        };
        let (info, attached) = interrupts
            .or(async {
                attaching.await.map_err(|error: crate::host::Error| Failure::from(error).exiting(Exit::FAILED))
            })
            .await?;
        let stdin = if args.no_stdin || !info.stdin_open { Stdin::Others } else { Stdin::Ours };
        if args.offset.is_none() {
            passing.begins_with_oldest();
        }
        let console = Console { stdin, terminal: info.pty, keys: args.detach_keys.clone() };
        let ended = interactive::talk(attached, &console, None, &mut passing, &mut interrupts).await;
        if !args.no_stdin && !info.stdin_open && !terminal::stdin_is_terminal() && terminal::stdin_has_more() {
            // somebody meant it
            printer.note(&format!(
                "podlink: stdin was left alone: what {} reads cannot be written to (see `podlink pod exec -di`)",
                info.process_id
            ));
        }
        match ended {
            Ok(interactive::End::Exit(result)) => Ok(passing.exit(conclude(&result, printer))),
            Ok(interactive::End::Detached) => {
                printer.note(&interactive::detached_note(&info.process_id, pod.name()));
                Ok(passing.exit(Exit::SUCCESS))
            }
            Err(halt @ Halt::Interrupted(_)) => halt.end(&format!("interrupted; {} is left as it is", info.process_id)),
            Err(halt) => halt.end(""),
        }
    })
}
