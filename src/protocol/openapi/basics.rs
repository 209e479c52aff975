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
use crate::protocol::{Health, PATH_HEALTH, PATH_WHOAMI, Whoami};

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path(PATH_HEALTH, PathItem::new(HttpMethod::Get, health()))
        .path(PATH_WHOAMI, PathItem::new(HttpMethod::Get, whoami()))
}

pub(super) fn schemas(schemas: &mut Schemas) {
    named::<Health>(schemas);
    named::<Whoami>(schemas);
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
