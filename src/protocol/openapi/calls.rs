//! The operations that run programs, and those on what runs.

use utoipa::openapi::{
    Content, PathItem, PathsBuilder, Required, Response, ResponseBuilder,
    path::{HttpMethod, Operation},
    request_body::RequestBodyBuilder,
};

use super::parts::{
    ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, answer, errors, in_path, in_query, json_body, named, operation,
    or_streamed, own_headers, request_header, text, whole_number, yes_or_no,
};
use crate::protocol::{
    AttachControl, AttachRequest, AttachStatus, ErrorCode, ExecRequest, ExecResult, Gap, PATH_EXEC, PATH_EXEC_ATTACH,
    PATH_PROCESSES, PATH_SESSIONS, ProcessEnded, ProcessInfo, ProcessList, SessionEnded, SessionList, SignalRequest,
    Signalled, Started, StdinAccepted, StreamEnd, TerminalSize,
};

/// What `POST /exec` may answer besides.
const EXEC: &[ErrorCode] = &[
    ErrorCode::BadBase64,
    ErrorCode::Timeout,
    ErrorCode::Conflict,
    ErrorCode::Busy,
    ErrorCode::Cancelled,
    ErrorCode::TooLarge,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::SpawnFailed,
];

/// What a path that takes a JSON body may answer besides.
const BODY: &[ErrorCode] = &[ErrorCode::Timeout, ErrorCode::TooLarge, ErrorCode::UnsupportedMediaType];

/// What the paths below one call may answer besides.
const OF_ONE: &[ErrorCode] = &[ErrorCode::NotFound, ErrorCode::Conflict];

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    let one = format!("{PATH_PROCESSES}/{{process_id}}");
    paths
        .path(PATH_EXEC, PathItem::new(HttpMethod::Post, exec()))
        .path(PATH_EXEC_ATTACH, PathItem::new(HttpMethod::Get, exec_attach()))
        .path(format!("{PATH_EXEC}/{{request_id}}"), PathItem::new(HttpMethod::Delete, cancel()))
        .path(PATH_PROCESSES, PathItem::new(HttpMethod::Get, list()))
        .path(one.as_str(), PathItem::new(HttpMethod::Get, get()))
        .path(one.as_str(), PathItem::new(HttpMethod::Delete, end()))
        .path(format!("{one}/attach"), PathItem::new(HttpMethod::Get, attach()))
        .path(format!("{one}/output"), PathItem::new(HttpMethod::Get, output()))
        .path(format!("{one}/stdin"), PathItem::new(HttpMethod::Post, write_stdin()))
        .path(format!("{one}/stdin"), PathItem::new(HttpMethod::Delete, close_stdin()))
        .path(format!("{one}/signal"), PathItem::new(HttpMethod::Post, signal()))
        .path(PATH_SESSIONS, PathItem::new(HttpMethod::Get, sessions()))
        .path(format!("{PATH_SESSIONS}/{{name}}"), PathItem::new(HttpMethod::Delete, end_session()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<ExecRequest>(schemas);
    named::<ExecResult>(schemas);
    named::<Started>(schemas);
    named::<StreamEnd>(schemas);
    named::<Gap>(schemas);
    named::<AttachRequest>(schemas);
    named::<AttachStatus>(schemas);
    named::<AttachControl>(schemas);
    named::<TerminalSize>(schemas);
    named::<ProcessInfo>(schemas);
    named::<ProcessList>(schemas);
    named::<ProcessEnded>(schemas);
    named::<SignalRequest>(schemas);
    named::<Signalled>(schemas);
    named::<StdinAccepted>(schemas);
    named::<SessionList>(schemas);
    named::<SessionEnded>(schemas);
}

fn list() -> Operation {
    operation("processes", "The calls that the agent knows: those that run or wait, and the newest that have ended")
        .responses_of(errors(&[ADMISSION, AUTHORIZED]))
        .response("200", answer::<ProcessList>("the calls, in the order in which they came"))
        .build()
}

fn get() -> Operation {
    operation("process", "One call")
        .parameter(of_call())
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE]))
        .response("200", answer::<ProcessInfo>("the call"))
        .build()
}

fn end() -> Operation {
    operation("end_process", "End a call, queued or running, with its whole tree, and forget it")
        .parameter(of_call())
        .parameter(in_query("grace_ms", "milliseconds between TERM and KILL, up to 60000", whole_number()))
        .parameter(in_query("keep", "end it and keep the record", yes_or_no()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE]))
        .response("200", answer::<ProcessEnded>("it has ended, by this or before"))
        .build()
}

fn output() -> Operation {
    operation("process_output", "The output of a streamed, attached or detached call, from an offset on")
        .description(Some(
            "Frames, or server-sent events, by Accept: output, a gap where some is gone, and last how the call ended. \
             Offsets count the bytes of stdout and stderr together.",
        ))
        .parameter(of_call())
        .parameter(in_query("offset", "where to begin; the oldest that is kept where absent", whole_number()))
        .parameter(in_query("watch", "only look on: the program does not wait for this reader", yes_or_no()))
        .parameter(in_query("follow", "wait for what is still to come; true where absent", yes_or_no()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE]))
        .response("200", or_streamed(plain("the output")))
        .build()
}

fn write_stdin() -> Operation {
    let body = RequestBodyBuilder::new()
        .required(Some(Required::True))
        .content("application/octet-stream", Content::new(Some(text())));
    operation("write_stdin", "Write the body's bytes to the program's stdin, at the program's pace")
        .parameter(of_call())
        .parameter(in_query("close", "let the program see the end afterwards", yes_or_no()))
        .request_body(Some(body.build()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE, &[ErrorCode::Timeout]]))
        .response("200", answer::<StdinAccepted>("all of it has been taken"))
        .build()
}

fn close_stdin() -> Operation {
    operation("close_stdin", "Let the program see the end of its stdin")
        .parameter(of_call())
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE]))
        .response("204", plain("it is closed"))
        .build()
}

fn signal() -> Operation {
    operation("signal_process", "Send a signal to a call's program, or to all of its processes")
        .parameter(of_call())
        .request_body(Some(json_body::<SignalRequest>()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE, BODY]))
        .response("200", answer::<Signalled>("it was sent"))
        .build()
}

fn sessions() -> Operation {
    operation("sessions", "The sessions in which something runs or waits")
        .responses_of(errors(&[ADMISSION, AUTHORIZED]))
        .response("200", answer::<SessionList>("the sessions, by name"))
        .build()
}

fn end_session() -> Operation {
    operation("end_session", "End all calls of a session, running and queued ones")
        .parameter(in_path("name", "the session's name"))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, &[ErrorCode::NotFound]]))
        .response("200", answer::<SessionEnded>("they have ended"))
        .build()
}

fn of_call() -> utoipa::openapi::path::Parameter {
    in_path("process_id", "the agent's name for the call")
}

fn plain(description: &str) -> Response {
    own_headers(ResponseBuilder::new().description(description)).build()
}

fn exec() -> Operation {
    operation("exec", "Run a script or a program and answer with what came of it")
        .description(Some(
            "By Accept the answer is one JSON object at the end, or the output as it comes, in Docker's frames or as \
             server-sent events. At most once: a repeat with the same X-Request-Id joins the run that the first one started, or gets its \
             result. A program that failed or timed out is a 200: the call did its job.",
        ))
        .parameter(request_header(
            "Podlink-If-Agent",
            "the agent_id that the first try spoke to; an agent that started since answers 409 and runs nothing",
        ))
        .request_body(Some(json_body::<ExecRequest>()))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, EXEC]))
        .response("200", or_streamed(answer::<ExecResult>("the program ran; with a streamed Accept, it runs")))
        .response("202", answer::<Started>("the program runs, detached"))
        .build()
}

fn exec_attach() -> Operation {
    operation("exec_attach", "Run a script or a program and stay attached to it, over a WebSocket")
        .description(Some(
            "The client's first message is an AttachRequest. From then on messages are binary, the first byte of each its \
             channel: 0 stdin, 1 stdout, 2 stderr, 3 JSON (AttachStatus from the agent, AttachControl from the client), 4 \
             TerminalSize, 255 the channel that is closed. What is wrong with the request comes on channel 3.",
        ))
        .parameter(request_header("Upgrade", "`websocket`, with the headers that go with it"))
        .parameter(request_header(
            "Podlink-If-Agent",
            "the agent_id that the first try spoke to; an agent that started since answers 409 and runs nothing",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, &[ErrorCode::Conflict]]))
        .response("101", plain("a WebSocket from here on"))
        .build()
}

fn attach() -> Operation {
    operation(
        "attach",
        "Attach to a call, over a WebSocket: its output from an offset on, its stdin, its terminal's size",
    )
    .description(Some("The messages are those of /exec/attach, without a first one from the client."))
    .parameter(of_call())
    .parameter(in_query("offset", "where to begin; the oldest that is kept where absent", whole_number()))
    .parameter(request_header("Upgrade", "`websocket`, with the headers that go with it"))
    .responses_of(errors(&[ADMISSION, AUTHORIZED, OF_ONE]))
    .response("101", plain("a WebSocket from here on"))
    .build()
}

fn cancel() -> Operation {
    operation("cancel_exec", "End the call that bears this request id, queued or running, with its whole tree")
        .parameter(in_path("request_id", "the X-Request-Id of the call"))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, &[ErrorCode::NotFound]]))
        .response(
            "204",
            own_headers(ResponseBuilder::new().description("the call has ended, by this or before")).build(),
        )
        .build()
}
