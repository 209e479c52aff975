//! A call whose whole output is its answer: with `--json`, and with agents that know no other.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    super::{Exit, Failure, Outcome, Printer, passing::conclude, signal::Interrupts},
    Call,
};
use crate::{
    host::{ExecOutcome, RequestId},
    protocol::{ErrorBody, ExecRequest},
};

pub(super) async fn run(
    call: &Call<'_>,
    request: &ExecRequest,
    printer: Printer,
    interrupts: &mut Interrupts,
) -> Outcome {
    let id = RequestId::generate()?;
    let outcome = tokio::select! {
        outcome = call.client.exec_as(&id, request) => outcome,
        exit = interrupts.next() => {
            let said = call.end_in_guest(&id, interrupts).await;
            return Err(Failure::interrupted(said, exit));
        }
    };
    match outcome {
        Ok(outcome) => Ok(deliver(&outcome, printer)),
        Err(error) => {
            if let (false, Some(answer)) = (printer.is_json(), error.answer()) {
                deliver_partial(answer, printer);
            }
            // every other code could be the program's own
            Err(Failure::from(error).exiting(Exit::FAILED))
        }
    }
}

/// Prints the outcome and tells the exit code.
fn deliver(outcome: &ExecOutcome, printer: Printer) -> Exit {
    if printer.is_json() {
        printer.json(&outcome.result);
    } else {
        printer.bytes(&outcome.stdout);
        printer.error_bytes(&outcome.stderr);
    }
    conclude(&outcome.result, printer)
}

/// Prints what a call had put out before the agent ended it.
fn deliver_partial(answer: &ErrorBody, printer: Printer) {
    let bytes = |text: Option<&String>, encoded: Option<&String>| {
        let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        decoded.or_else(|| text.map(|text| text.clone().into_bytes())).unwrap_or_default()
    };
    printer.bytes(&bytes(answer.stdout.as_ref(), answer.stdout_b64.as_ref()));
    printer.error_bytes(&bytes(answer.stderr.as_ref(), answer.stderr_b64.as_ref()));
}
