//! The operations of `/system/*`, for the `OpenAPI` document.

use utoipa::openapi::{
    PathItem, PathsBuilder,
    path::{HttpMethod, Operation},
};

use super::parts::{ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, answer, errors, named, operation};
use crate::protocol::{ErrorCode, PATH_SYSTEM_PROCESSES, PATH_SYSTEM_SOCKETS, SystemProcesses, SystemSockets};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path(PATH_SYSTEM_PROCESSES, PathItem::new(HttpMethod::Get, processes()))
        .path(PATH_SYSTEM_SOCKETS, PathItem::new(HttpMethod::Get, sockets()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<SystemProcesses>(schemas);
    named::<SystemSockets>(schemas);
}

/// What they may answer besides: the guest's system shows nothing of it.
const SYSTEM: &[ErrorCode] = &[ErrorCode::Unsupported];

fn processes() -> Operation {
    operation("system_processes", "All processes of the guest at one moment")
        .description(Some(
            "With the signals that each catches, blocks and ignores, and the call that it belongs to. What the agent's \
             account may not read is null or empty; processes that end while they are read are left out.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<SystemProcesses>("the processes, by number"))
        .build()
}

fn sockets() -> Operation {
    operation("system_sockets", "The sockets of the guest that others can reach, and who holds them")
        .description(Some(
            "TCP sockets that listen and UDP sockets that are bound to no peer. Owners that the agent's account may not \
             look into are left out.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<SystemSockets>("the sockets, by protocol, port and address"))
        .build()
}
