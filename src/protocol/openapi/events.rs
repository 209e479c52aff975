//! The operation of `/events` and the data of each event, for the `OpenAPI` document.

use utoipa::openapi::{
    Content, PathItem, PathsBuilder, ResponseBuilder,
    path::{HttpMethod, Operation},
};

use super::parts::{
    ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, errors, in_query, named, operation, own_headers, request_header,
    text,
};
use crate::protocol::{
    AgentStartedEvent, AuthFailedEvent, EventName, ExecExitedEvent, ExecOutputEvent, ExecStartedEvent, GapEvent,
    InstallStepEvent, LaggedEvent, LogEvent, MEDIA_EVENTS, PATH_EVENTS, PlainEvent,
};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths.path(PATH_EVENTS, PathItem::new(HttpMethod::Get, events()))
}

fn events() -> Operation {
    let names: Vec<_> = EventName::ALL.iter().map(|name| name.as_str()).collect();
    let content = Content::builder().schema(Some(text())).build();
    let told = ResponseBuilder::new()
        .description(format!(
            "the events, without an end before the agent's: {}. The data of each is one line of JSON, by the schema \
             that bears its name; it always has `ts`",
            names.join(", ")
        ))
        .content(MEDIA_EVENTS, content);
    operation("events", "What the agent does, as it does it, as server-sent events")
        .description(Some(
            "Answered before the guest is ready, too. Without an id to resume from, it begins with what happens next. A \
             position (an id without data) comes first, so that a reader whose connection breaks at once can resume.",
        ))
        .parameter(request_header("Last-Event-ID", "resume behind this event; it counts before `since`"))
        .parameter(in_query("since", "resume behind this event; what is not the id of an event that is held gets a `gap`", text()))
        .parameter(in_query("types", "names with commas between them; `exec.*` is all that begin so", text()))
        .parameter(in_query("output", "1 for `exec.output` as well", text()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED]))
        .response("200", own_headers(told).build())
        .build()
}

/// The data of each event.
pub(super) fn schemas(schemas: &mut Schemas) {
    named::<AgentStartedEvent>(schemas);
    named::<PlainEvent>(schemas);
    named::<ExecStartedEvent>(schemas);
    named::<ExecOutputEvent>(schemas);
    named::<ExecExitedEvent>(schemas);
    named::<InstallStepEvent>(schemas);
    named::<AuthFailedEvent>(schemas);
    named::<LogEvent>(schemas);
    named::<GapEvent>(schemas);
    named::<LaggedEvent>(schemas);
}
