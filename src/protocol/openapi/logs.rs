//! The operation of `/logs`, for the `OpenAPI` document.

use utoipa::openapi::{
    Content, PathItem, PathsBuilder, ResponseBuilder,
    path::{HttpMethod, Operation},
    schema::ObjectBuilder,
};

use super::parts::{
    ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, component, errors, in_query, named, operation, own_headers, text,
    whole_number, yes_or_no,
};
use crate::protocol::{ErrorCode, GuestLog, LogLine, MEDIA_NDJSON, PATH_LOGS};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths.path(PATH_LOGS, PathItem::new(HttpMethod::Get, logs()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<LogLine>(schemas);
}

fn sources() -> ObjectBuilder {
    text().enum_values(Some([GuestLog::Agent, GuestLog::Install].map(GuestLog::as_str)))
}

fn logs() -> Operation {
    let lines = ResponseBuilder::new()
        .description("a JSON object a line; an empty line is a sign of life")
        .content(MEDIA_NDJSON, Content::new(Some(component::<LogLine>())));
    operation("logs", "The agent's log, or that of the guest's installation")
        .description(Some(
            "At the pace of its reader, however slow; it ends with the agent. Answered as soon as the agent has its \
             token, ready or not.",
        ))
        .parameter(in_query("source", "which log; the agent's where absent", sources()))
        .parameter(in_query("follow", "go on with what is added; false where absent", yes_or_no()))
        .parameter(in_query("tail", "no more than so many of the last lines; all where absent", whole_number()))
        .parameter(in_query("since", "nothing older than this time, as RFC 3339 has it", text()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, &[ErrorCode::NotFound]]))
        .response("200", own_headers(lines).build())
        .build()
}
