//! `podlink pod logs`.

use super::{Exit, Failure, Outcome, PodChoice, Printer, block_on, signal::Interrupts};
use crate::host::engine::{self, EngineSettings, LogRequest, LogStream};

/// Show a pod's log: its container's, or its agent's where the engine is local
///
/// The log is passed on as it is. It is for the eye: whether the guest is ready only `podlink pod wait-ready` tells.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod logs --tail 20
  podlink pod logs -f                  go on until the pod ends, or Ctrl-C")]
pub(super) struct LogsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Go on with what is said from now on, until the pod ends
    #[arg(long, short)]
    follow: bool,
    /// No more than this many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
}

pub(super) fn run(args: &LogsArgs, printer: Printer) -> Outcome {
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
