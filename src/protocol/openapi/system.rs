//! The operations of `/system/*`, for the `OpenAPI` document.

use utoipa::openapi::{
    Content, PathItem, PathsBuilder,
    path::{HttpMethod, Operation},
};

use super::parts::{
    ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, answer, errors, in_query, json_body, named, operation, text,
    yes_or_no,
};
use crate::protocol::{
    ErrorCode, GuestTime, MEDIA_OPENMETRICS, MEDIA_PROMETHEUS, Metrics, PATH_SYSTEM_INFO, PATH_SYSTEM_METRICS,
    PATH_SYSTEM_PROCESSES, PATH_SYSTEM_SOCKETS, PATH_SYSTEM_TIME, SetTime, SystemInfo, SystemProcesses, SystemSockets,
    TimeSet,
};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path(PATH_SYSTEM_PROCESSES, PathItem::new(HttpMethod::Get, processes()))
        .path(PATH_SYSTEM_SOCKETS, PathItem::new(HttpMethod::Get, sockets()))
        .path(PATH_SYSTEM_INFO, PathItem::new(HttpMethod::Get, info()))
        .path(PATH_SYSTEM_METRICS, PathItem::new(HttpMethod::Get, metrics()))
        .path(PATH_SYSTEM_TIME, PathItem::new(HttpMethod::Get, time()))
        .path(PATH_SYSTEM_TIME, PathItem::new(HttpMethod::Post, set_time()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<SystemProcesses>(schemas);
    named::<SystemSockets>(schemas);
    named::<SystemInfo>(schemas);
    named::<Metrics>(schemas);
    named::<GuestTime>(schemas);
    named::<SetTime>(schemas);
    named::<TimeSet>(schemas);
}

/// What they may answer besides: the guest's system shows nothing of it.
const SYSTEM: &[ErrorCode] = &[ErrorCode::Unsupported];

/// What setting the clock may answer besides.
const SET: &[ErrorCode] =
    &[ErrorCode::NotPermitted, ErrorCode::Timeout, ErrorCode::TooLarge, ErrorCode::UnsupportedMediaType];

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

fn info() -> Operation {
    operation("system_info", "What the guest is")
        .parameter(in_query("packages", "whether to list the installed packages too, by dpkg or rpm", yes_or_no()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<SystemInfo>("the guest's system, machine and users"))
        .build()
}

fn metrics() -> Operation {
    let mut ok = answer::<Metrics>("the numbers; as text for Prometheus where Accept asks for that");
    for media in [MEDIA_PROMETHEUS, MEDIA_OPENMETRICS] {
        ok.content.insert(media.to_owned(), Content::new(Some(text())).into());
    }
    operation("system_metrics", "How busy the guest and its agent are")
        .description(Some(
            "JSON, or by Accept the text format 0.0.4 of Prometheus (`text/plain`) or OpenMetrics 1.0.0 \
             (`application/openmetrics-text`). All counts go up from the guest's, or the agent's, start.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", ok)
        .build()
}

fn time() -> Operation {
    operation("system_time", "The guest's clocks")
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SYSTEM]))
        .response("200", answer::<GuestTime>("the clocks, read as the answer is made"))
        .build()
}

fn set_time() -> Operation {
    operation("set_system_time", "Sets the guest's clock, in one step")
        .description(Some("Running time-outs are not affected: they go by a clock that never jumps."))
        .request_body(Some(json_body::<SetTime>()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, SET, SYSTEM]))
        .response("200", answer::<TimeSet>("the clock before and after"))
        .build()
}
