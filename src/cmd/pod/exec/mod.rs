//! `podlink pod exec`: streamed, interactive, detached, or as one JSON object.

mod args;
mod buffered;
mod detached;
mod streamed;

use std::time::Duration;

pub(in crate::cmd) use self::args::tip;
pub(super) use self::args::{ExecArgs, session};
use super::{
    Exit, Failure, Outcome, Printer, block_on,
    interactive::{self, Console, Stdin},
    passing::{Halt, Passing, conclude},
    signal::Interrupts,
};
use crate::{
    host::{self, AgentClient, AgentKind, ClientSettings, Error, ErrorKind, Pod, RequestId, WaitSettings, terminal},
    protocol::{AttachRequest, ExecRequest, TimeoutSec},
};

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Buffered,
    Streamed,
    Attached,
    Detached,
}

pub(super) fn run(args: ExecArgs, printer: Printer) -> Outcome {
    args::check(&args)?;
    let pod = args.pod.load()?;
    let call = Call { pod: &pod, client: &AgentClient::for_pod(&pod, ClientSettings::DEFAULT)? };
    let manner = manner(&args, &pod)?;
    let console = Console {
        stdin: if args.interactive || (args.tty && terminal::stdin_is_terminal()) {
            // a keyboard belongs to the terminal that was asked for
            Stdin::Ours
        } else {
            Stdin::Nothing
        },
        terminal: args.tty,
        keys: args.detach_keys.clone(),
    };
    let is_text = !args.json;
    if manner == Manner::Buffered && !is_text && args.timeout == Some(0.0) {
        return Err(Failure::usage(
            "--timeout 0: a call whose whole output is its answer (--json) needs a limit; give one, or leave out --json, or use --detach",
        ));
    }
    let (wait, keeps_stdin) = (args.wait, args.interactive);
    let mut request = args::request_of(args)?;
    if manner == Manner::Streamed || (manner == Manner::Buffered && is_text) {
        // the wire's own default is a limit
        request.timeout_sec = request.timeout_sec.or(Some(TimeoutSec::Seconds(0.0)));
    }
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        call.wait_ready(wait, &mut interrupts).await?;
        match manner {
            Manner::Buffered => buffered::run(&call, &request, printer, &mut interrupts).await,
            Manner::Streamed => streamed::run(&call, &request, printer, &mut interrupts).await,
            Manner::Attached => call.attached(request, &console, printer, &mut interrupts).await,
            Manner::Detached => {
                request.open_stdin = keeps_stdin && !console.terminal;
                detached::run(&call, request, console.terminal, printer, &mut interrupts).await
            }
        }
    })
}

fn manner(args: &ExecArgs, pod: &Pod) -> Result<Manner, Failure> {
    let manner = match () {
        () if args.detach => Manner::Detached,
        () if args.interactive || args.tty => Manner::Attached,
        () if args.json => Manner::Buffered,
        () => Manner::Streamed,
    };
    match (pod.settings().agent, manner) {
        (AgentKind::Winpodx, Manner::Attached | Manner::Detached) => Err(Error::new(
            ErrorKind::Unsupported,
            "this pod's agent, winpodx', knows neither terminals, nor input, nor jobs",
        )
        .with_hint("leave out -i, -t and -d, or put podlink's own agent into the guest")
        .into()),
        (AgentKind::Winpodx, Manner::Streamed) => Ok(Manner::Buffered),
        _ => Ok(manner),
    }
}

/// Where calls are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) pod: &'a Pod,
    pub(super) client: &'a AgentClient,
}

impl Call<'_> {
    /// Waits for the guest where that was asked for; with the exit codes of `wait-ready`.
    pub(super) async fn wait_ready(&self, wait: Option<f64>, interrupts: &mut Interrupts) -> Result<(), Failure> {
        let Some(wait) = wait else { return Ok(()) };
        let settings = WaitSettings { timeout: Duration::from_secs_f64(wait), ..WaitSettings::DEFAULT };
        tokio::select! {
            ready = host::wait_ready(self.client, || host::engine::state(self.pod), &settings, |_| {}) => {
                drop(ready?);
                Ok(())
            }
            exit = interrupts.next() => Err(Failure::interrupted("interrupted before the call was made", exit)),
        }
    }

    /// A call with input, in a terminal where one is wanted.
    pub(super) async fn attached(
        &self,
        request: ExecRequest,
        console: &Console,
        printer: Printer,
        interrupts: &mut Interrupts,
    ) -> Outcome {
        let id = RequestId::generate()?;
        let mut passing = Passing::new(printer)?;
        let request = if console.terminal {
            interactive::in_terminal(request)
        } else {
            AttachRequest { exec: request, pty: None }
        };
        let attaching = tokio::select! {
            attached = self.client.attach_as(&id, &request) => attached.map_err(Halt::Failed),
            exit = interrupts.next() => Err(Halt::Interrupted(exit)),
        };
        let attached = match attaching {
            Ok(attached) => attached,
            Err(halt) => return self.halted(halt, &id, interrupts).await,
        };
        let process_id = attached.process_id().to_owned();
        let told = request.pty.as_ref().and(terminal::size());
        match interactive::talk(attached, console, told, &mut passing, interrupts).await {
            Ok(interactive::End::Exit(result)) => Ok(passing.exit(conclude(&result, printer))),
            Ok(interactive::End::Detached) => {
                printer.note(&interactive::detached_note(&process_id, self.pod.name()));
                Ok(passing.exit(Exit::SUCCESS))
            }
            Err(halt) => self.halted(halt, &id, interrupts).await,
        }
    }

    /// The end of a call whose output cannot be handed on: the program ends too.
    async fn halted(&self, halt: Halt, id: &RequestId, interrupts: &mut Interrupts) -> Outcome {
        let said = match &halt {
            // the agent knows of it, or cannot be reached
            Halt::Failed(_) => "",
            Halt::Unread | Halt::Unwritten(_) | Halt::Interrupted(_) => self.end_in_guest(id, interrupts).await,
        };
        halt.end(said)
    }

    /// Ends a call in the guest, and says what came of that; a further signal does not wait for it.
    async fn end_in_guest(&self, id: &RequestId, interrupts: &mut Interrupts) -> &'static str {
        if self.pod.settings().agent == AgentKind::Winpodx {
            return "interrupted; winpodx' agent cannot end a script, which runs on in the guest to its end or time-out";
        }
        let ended = tokio::select! {
            ended = self.client.cancel(id) => ended,
            _ = interrupts.next() => Ok(false),
        };
        match ended {
            Ok(true) => "interrupted; the call was ended in the guest",
            Ok(false) => "interrupted; whether the call had begun in the guest is not known",
            Err(_) => "interrupted; the agent could not be told, it ends the call by itself in a few seconds",
        }
    }
}
