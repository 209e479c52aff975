//! A call whose output comes as it is written.

use super::{
    super::{
        Failure, Outcome, Printer,
        passing::{Halt, Passing, conclude},
        signal::Interrupts,
    },
    Call,
};
use crate::{host::RequestId, protocol::ExecRequest};

pub(super) async fn run(
    call: &Call<'_>,
    request: &ExecRequest,
    printer: Printer,
    interrupts: &mut Interrupts,
) -> Outcome {
    let id = RequestId::generate()?;
    let mut passing = Passing::new(printer)?;
    let streaming = async {
        let mut stream = call.client.exec_stream_as(&id, request).await?;
        passing.all_of(&mut stream).await
    };
    let ended = tokio::select! {
        ended = streaming => ended,
        exit = interrupts.next() => Err(Halt::Interrupted(exit)),
    };
    match ended {
        Ok(Some(result)) => Ok(passing.exit(conclude(&result, printer))),
        Ok(None) => Err(cut()),
        Err(halt) => call.halted(halt, &id, interrupts).await,
    }
}

/// A stream that just stops: the client lets none do so.
fn cut() -> Failure {
    use crate::host::{Error, ErrorKind};
    Error::new(ErrorKind::Internal, "the program's output ended without its exit code").into()
}
