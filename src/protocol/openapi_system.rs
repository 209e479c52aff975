//! The operations of `/system/*`, for the `OpenAPI` document.

use utoipa::openapi::path::Operation;

use super::{
    ErrorCode, SystemProcesses, SystemSockets,
    openapi::{ADMISSION, AUTHORIZED, ResponsesOf as _, answer, errors, operation},
};

/// What they may answer besides: the guest's system shows nothing of it.
const SYSTEM: &[ErrorCode] = &[ErrorCode::Unsupported];

pub(super) fn processes() -> Operation {
    operation("system_processes", "All processes of the guest at one moment")
        .description(Some(
            "With the signals that each catches, blocks and ignores, and the call that it belongs to. What the agent's \
             account may not read is null or empty; processes that end while they are read are left out.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<SystemProcesses>("the processes, by number"))
        .build()
}

pub(super) fn sockets() -> Operation {
    operation("system_sockets", "The sockets of the guest that others can reach, and who holds them")
        .description(Some(
            "TCP sockets that listen and UDP sockets that are bound to no peer. Owners that the agent's account may not \
             look into are left out.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<SystemSockets>("the sockets, by protocol, port and address"))
        .build()
}
