//! The wire as an `OpenAPI` document, built from the very types that go over it. Data only.
//!
//! `docs/openapi.yaml` is this document written out; `tests/openapi.rs` holds the two together. To offer a new
//! endpoint, add its operation to [`openapi`] and run that test once with `PODLINK_BLESS=1`.

use std::collections::BTreeMap;

use utoipa::{
    ToSchema,
    openapi::{
        Components, ComponentsBuilder, Content, Header, HeaderBuilder, InfoBuilder, LicenseBuilder, OpenApi,
        OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required, Response, ResponseBuilder, ServerBuilder,
        path::{HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::{ObjectBuilder, Schema, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{
    DEFAULT_PORT, ErrorBody, ErrorCode, ExecRequest, ExecResult, Health, PATH_EVENTS, PATH_EXEC, PATH_HEALTH,
    PATH_SYSTEM_PROCESSES, PATH_SYSTEM_SOCKETS, PATH_WHOAMI, PROTOCOL_VERSION, SystemProcesses, SystemSockets, Whoami,
    openapi_events, openapi_system,
};

/// The name of the one security scheme.
const BEARER: &str = "bearer";

const JSON: &str = "application/json";

const DESCRIPTION: &str = "What the agent in the guest offers, protocol version 1; docs/protocol.md says it in words. \
    Every path but /health needs the bearer token: without it every other path, known or not, answers 401.";

/// What every path may answer before its own work begins, or where the agent is at fault.
pub(super) const ADMISSION: &[ErrorCode] = &[
    ErrorCode::ForbiddenPeer,
    ErrorCode::ForbiddenHost,
    ErrorCode::ForbiddenOrigin,
    ErrorCode::ProtocolVersionMismatch,
    ErrorCode::BadRequest,
    ErrorCode::InternalError,
];

/// What every path behind the token may answer besides.
pub(super) const AUTHORIZED: &[ErrorCode] =
    &[ErrorCode::Unauthorized, ErrorCode::QueueFull, ErrorCode::NotReady, ErrorCode::AgentStopping];

/// What `POST /exec` may answer besides.
const EXEC: &[ErrorCode] = &[
    ErrorCode::BadBase64,
    ErrorCode::Timeout,
    ErrorCode::Conflict,
    ErrorCode::Cancelled,
    ErrorCode::TooLarge,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::SpawnFailed,
    ErrorCode::Unsupported,
];

/// The document that describes every endpoint which this build offers.
pub fn openapi() -> OpenApi {
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("podlink agent")
                .version(PROTOCOL_VERSION.to_string())
                .description(Some(DESCRIPTION))
                .license(Some(LicenseBuilder::new().name("MIT").identifier(Some("MIT")).build())),
        )
        .servers(Some([ServerBuilder::new()
            .url(format!("http://127.0.0.1:{DEFAULT_PORT}"))
            .description(Some("the port that a pod publishes on the host's loopback"))
            .build()]))
        .paths(
            PathsBuilder::new()
                .path(PATH_HEALTH, PathItem::new(HttpMethod::Get, health()))
                .path(PATH_WHOAMI, PathItem::new(HttpMethod::Get, whoami()))
                .path(PATH_EXEC, PathItem::new(HttpMethod::Post, exec()))
                .path(format!("{PATH_EXEC}/{{request_id}}"), PathItem::new(HttpMethod::Delete, cancel()))
                .path(PATH_EVENTS, PathItem::new(HttpMethod::Get, openapi_events::events()))
                .path(PATH_SYSTEM_PROCESSES, PathItem::new(HttpMethod::Get, openapi_system::processes()))
                .path(PATH_SYSTEM_SOCKETS, PathItem::new(HttpMethod::Get, openapi_system::sockets())),
        )
        .components(Some(components()))
        .security(Some([SecurityRequirement::new(BEARER, [] as [&str; 0])]))
        .build()
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

fn exec() -> Operation {
    operation("exec", "Run a script or a program and answer with what came of it")
        .description(Some(
            "At most once: a repeat with the same X-Request-Id joins the run that the first one started, or gets its \
             result. A program that failed or timed out is a 200: the call did its job.",
        ))
        .parameter(request_header(
            "Podlink-If-Agent",
            "the agent_id that the first try spoke to; an agent that started since answers 409 and runs nothing",
        ))
        .request_body(Some(
            RequestBodyBuilder::new()
                .required(Some(Required::True))
                .content(JSON, Content::new(Some(component::<ExecRequest>())))
                .build(),
        ))
        .responses_of(errors(&[ADMISSION, AUTHORIZED, EXEC]))
        .response("200", answer::<ExecResult>("the program ran"))
        .build()
}

fn cancel() -> Operation {
    operation("cancel_exec", "End the call that bears this request id, queued or running, with its whole tree")
        .parameter(
            ParameterBuilder::new()
                .name("request_id")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some("the X-Request-Id of the call"))
                .schema(Some(text())),
        )
        .responses_of(errors(&[ADMISSION, AUTHORIZED, &[ErrorCode::NotFound]]))
        .response(
            "204",
            own_headers(ResponseBuilder::new().description("the call has ended, by this or before")).build(),
        )
        .build()
}

/// An operation with the headers that every request may bear.
pub(super) fn operation(id: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .parameter(request_header("Podlink-Protocol", "the version that the caller speaks; another one gets 400"))
        .parameter(request_header("X-Request-Id", "the caller's id for the request; one is made where absent"))
}

pub(super) trait ResponsesOf {
    /// Adds these answers; one added later under the same status takes its place.
    fn responses_of(self, responses: BTreeMap<String, Response>) -> Self;
}

impl ResponsesOf for OperationBuilder {
    fn responses_of(self, responses: BTreeMap<String, Response>) -> Self {
        responses.into_iter().fold(self, |operation, (status, response)| operation.response(status, response))
    }
}

/// The error answers by status: codes of one status share one, as the format has it.
pub(super) fn errors(groups: &[&[ErrorCode]]) -> BTreeMap<String, Response> {
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for code in groups.iter().copied().flatten() {
        by_status.entry(code.status()).or_default().push(format!("`{}`", code.as_str()));
    }
    by_status
        .into_iter()
        .map(|(status, codes)| {
            let body = Content::new(Some(component::<ErrorBody>()));
            let response = own_headers(ResponseBuilder::new().description(codes.join(", ")).content(JSON, body));
            let response = match status {
                401 => response.header("WWW-Authenticate", response_header("`Bearer`")).build(),
                429 | 503 => with_retry_after(response.build()),
                _ => response.build(),
            };
            (status.to_string(), response)
        })
        .collect()
}

/// An answer whose body is a `T`.
pub(super) fn answer<T: ToSchema>(description: &str) -> Response {
    let body = Content::new(Some(component::<T>()));
    own_headers(ResponseBuilder::new().description(description).content(JSON, body)).build()
}

/// The headers that every answer bears.
pub(super) fn own_headers(response: ResponseBuilder) -> ResponseBuilder {
    response
        .header("Podlink-Protocol", response_header("the version that the agent speaks"))
        .header("X-Request-Id", response_header("the request's id"))
}

fn with_proof(mut response: Response) -> Response {
    let proof = "hex(HMAC-SHA256(token, \"podlink-health-1\" || challenge)), where one came and the agent has a token";
    response.headers.insert("Podlink-Proof".to_owned(), response_header(proof).into());
    response
}

fn with_retry_after(mut response: Response) -> Response {
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let header = HeaderBuilder::new().schema(Some(seconds)).description(Some("seconds, where a repeat may help"));
    response.headers.insert("Retry-After".to_owned(), header.build().into());
    response
}

pub(super) fn request_header(name: &str, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(text()))
        .build()
}

fn response_header(description: &str) -> Header {
    HeaderBuilder::new().schema(Some(text())).description(Some(description)).build()
}

pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn component<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}

/// The types, with all that they name.
fn components() -> Components {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("64 hex digits")
        .description(Some("the pod's token: agent_token.txt in its folder"))
        .build();
    let mut schemas = Vec::new();
    named::<Health>(&mut schemas);
    named::<Whoami>(&mut schemas);
    named::<ExecRequest>(&mut schemas);
    named::<ExecResult>(&mut schemas);
    named::<ErrorBody>(&mut schemas);
    named::<SystemProcesses>(&mut schemas);
    named::<SystemSockets>(&mut schemas);
    openapi_events::schemas(&mut schemas);
    let mut components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .build();
    for schema in components.schemas.values_mut() {
        tidy(schema);
    }
    components
}

/// Adds a type and those that it names.
pub(super) fn named<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Makes a schema speak to readers of the document rather than of the code.
fn tidy(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    // what a reader takes an unknown word for is never sent
    if let Some(words) = &mut object.enum_values {
        words.retain(|word| word != "unknown");
    }
    if let Some(description) = &mut object.description {
        *description = without_rustdoc_links(description);
    }
    object.properties.values_mut().for_each(tidy);
}

/// ``[`Name`](path)`` and ``[`Name`]`` become `` `Name` ``.
fn without_rustdoc_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        out.push_str(before);
        out.push('`');
        out.push_str(name);
        out.push('`');
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn links_into_the_code_are_cut() {
        for (text, expected) in
            [("plain", "plain"), ("a [`B`](super::B), [`C`] [d](e)", "a `B`, `C` [d](e)"), ("open [`B", "open [`B")]
        {
            assert_eq!(without_rustdoc_links(text), expected);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn collect<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
            match value {
                Value::Object(object) => {
                    into.extend(object.get("$ref").and_then(Value::as_str));
                    object.values().for_each(|value| collect(value, into));
                }
                Value::Array(array) => array.iter().for_each(|value| collect(value, into)),
                _ => {}
            }
        }
        let document = serde_json::to_value(openapi()).unwrap();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 10);
        for reference in references {
            assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
        }
    }

    #[test]
    fn every_answer_bears_the_common_headers_and_errors_the_common_body() {
        let document = serde_json::to_value(openapi()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let place = format!("{method} {path} {status}");
                    assert!(response.pointer("/headers/Podlink-Protocol").is_some(), "{place}");
                    assert!(response.pointer("/headers/X-Request-Id").is_some(), "{place}");
                    if status.starts_with(['4', '5']) && (path, status.as_str()) != (&PATH_HEALTH.to_owned(), "503") {
                        let body = response.pointer("/content/application~1json/schema/$ref");
                        assert_eq!(body.and_then(Value::as_str), Some("#/components/schemas/ErrorBody"), "{place}");
                    }
                }
                assert_eq!(operation.get("security").is_some(), path == PATH_HEALTH, "{method} {path}");
            }
        }
    }

    #[test]
    fn what_is_never_sent_is_not_promised() {
        assert!(!serde_json::to_string(&openapi()).unwrap().contains("\"unknown\""));
    }
}
