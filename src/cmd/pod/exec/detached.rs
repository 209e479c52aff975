//! A call that nobody stays with.

use serde::Serialize;

use super::{
    super::{Exit, Failure, Outcome, Printer, interactive, signal::Interrupts},
    Call,
};
use crate::{
    host::{AttachEvent, Error, ErrorKind, RequestId},
    protocol::ExecRequest,
};

/// What `--detach --json` prints.
#[derive(Debug, Serialize)]
struct Detached<'a> {
    process_id: &'a str,
    pid: Option<u32>,
}

/// Starts a job, in a terminal of its own where one is wanted, and prints its id.
pub(super) async fn run(
    call: &Call<'_>,
    request: ExecRequest,
    terminal: bool,
    printer: Printer,
    interrupts: &mut Interrupts,
) -> Outcome {
    let id = RequestId::generate()?;
    let starting = async {
        let process_id =
            if terminal { in_terminal(call, &id, request).await? } else { started(call, &id, &request).await? };
        // only a machine asks for the number; a job that ended already may have none
        let pid = if printer.is_json() {
            call.client.job(&process_id).info().await.ok().and_then(|info| info.pid)
        } else {
            None
        };
        Ok::<_, Error>((process_id, pid))
    };
    let (process_id, pid) = tokio::select! {
        started = starting => started.map_err(|error| Failure::from(error).exiting(Exit::FAILED))?,
        exit = interrupts.next() => {
            let said = call.end_in_guest(&id, interrupts).await;
            return Err(Failure::interrupted(said, exit));
        }
    };
    if printer.is_json() {
        printer.json(&Detached { process_id: &process_id, pid });
    } else {
        printer.line(&process_id);
    }
    Ok(Exit::SUCCESS)
}

async fn started(call: &Call<'_>, id: &RequestId, request: &ExecRequest) -> Result<String, Error> {
    Ok(call.client.spawn_as(id, request).await?.process_id().to_owned())
}

/// A terminal belongs to an attached call; left at once, it is a job.
async fn in_terminal(call: &Call<'_>, id: &RequestId, request: ExecRequest) -> Result<String, Error> {
    let attached = call.client.attach_as(id, &interactive::in_terminal(request)).await?;
    let process_id = attached.process_id().to_owned();
    let (mut input, mut output) = attached.split();
    input.detach().await?;
    while let Some(event) = output.next().await {
        // what it has put out until here is kept for whoever comes back
        if matches!(event?, AttachEvent::Detached { .. } | AttachEvent::Exit(_)) {
            return Ok(process_id);
        }
    }
    Err(Error::new(ErrorKind::Internal, format!("whether {process_id} runs on as a job is not known"))
        .with_hint(format!("see `podlink pod ps{}`", call.pod.name().flag())))
}
