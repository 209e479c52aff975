//! The operations that tell who answers and how far the guest has come.

use utoipa::openapi::{
    PathItem, PathsBuilder,
    path::{HttpMethod, Operation},
    security::SecurityRequirement,
};

use super::parts::{
    ADMISSION, AUTHORIZED, ResponsesOf as _, Schemas, answer, errors, named, operation, request_header, with_proof,
    with_retry_after,
};
use crate::protocol::{ErrorCode, Health, PATH_AGENT_RESTART, PATH_HEALTH, PATH_WHOAMI, RestartAccepted, Whoami};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path(PATH_HEALTH, PathItem::new(HttpMethod::Get, health()))
        .path(PATH_WHOAMI, PathItem::new(HttpMethod::Get, whoami()))
        .path(PATH_AGENT_RESTART, PathItem::new(HttpMethod::Post, restart()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<Health>(schemas);
    named::<Whoami>(schemas);
    named::<RestartAccepted>(schemas);
}

fn health() -> Operation {
    operation("health", "Readiness: 200 is the only sign of it")
        .description(Some(
            "Never waits: it answers while every exec slot is taken. With Podlink-Challenge the answer bears \
             Podlink-Proof, by which a caller knows that the agent holds the token before it sends its own.",
        ))
        .securities(Some([SecurityRequirement::default()]))
        .parameter(request_header("Podlink-Challenge", "64 hex digits that the agent is to sign"))
        .responses_of(errors(&[ADMISSION]))
        .response("200", with_proof(answer::<Health>("ready: calls are served")))
        .response("503", with_retry_after(with_proof(answer::<Health>("not ready: see stage and waiting_for"))))
        .build()
}

fn whoami() -> Operation {
    operation("whoami", "Who the agent is and what it allows; does nothing else")
        .responses_of(errors(&[ADMISSION, AUTHORIZED]))
        .response("200", answer::<Whoami>("the token is the agent's own"))
        .build()
}

/// What a restart may answer besides.
const RESTART: &[ErrorCode] =
    &[ErrorCode::Unsupported, ErrorCode::Timeout, ErrorCode::TooLarge, ErrorCode::UnsupportedMediaType];

fn restart() -> Operation {
    operation("restart_agent", "Ends the agent once its calls have their answers, to be started again")
        .description(Some(
            "By its supervisor, or by the service manager; 501 where neither would. From the answer on no call is taken, \
             and those that run, the asking one too, have as long as when the agent stops. Another agent_id in /health \
             tells that it is done. Asked again meanwhile it answers the same. An empty body will do.",
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, RESTART]))
        .response("202", answer::<RestartAccepted>("the agent that ends, and how long its calls still have"))
        .build()
}
