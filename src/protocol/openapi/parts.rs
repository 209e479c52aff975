//! What operations of the document are put together from.

use std::collections::BTreeMap;

use utoipa::{
    ToSchema,
    openapi::{
        Content, Header, HeaderBuilder, Ref, RefOr, Required, Response, ResponseBuilder,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::{RequestBody, RequestBodyBuilder},
        schema::{ObjectBuilder, Schema, Type},
    },
};

use crate::protocol::{ErrorBody, ErrorCode, MEDIA_EVENTS, MEDIA_MULTIPLEXED};

/// Types of the document by name.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

pub(super) const JSON: &str = "application/json";

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

pub(super) fn with_proof(mut response: Response) -> Response {
    let proof = "hex(HMAC-SHA256(token, \"podlink-health-1\" || challenge)), where one came and the agent has a token";
    response.headers.insert("Podlink-Proof".to_owned(), response_header(proof).into());
    response
}

pub(super) fn with_retry_after(mut response: Response) -> Response {
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

pub(super) fn response_header(description: &str) -> Header {
    HeaderBuilder::new().schema(Some(text())).description(Some(description)).build()
}

pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

pub(super) fn component<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}

/// Adds a type and those that it names.
pub(super) fn named<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// A parameter in the path.
pub(super) fn in_path(name: &str, description: &str) -> Parameter {
    parameter(name, ParameterIn::Path, Required::True, description, text())
}

/// A parameter behind the `?`.
pub(super) fn in_query(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    parameter(name, ParameterIn::Query, Required::False, description, schema)
}

fn parameter(
    name: &str,
    place: ParameterIn,
    required: Required,
    description: &str,
    schema: ObjectBuilder,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

pub(super) fn whole_number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0))
}

pub(super) fn yes_or_no() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Boolean)
}

/// A request's JSON body.
pub(super) fn json_body<T: ToSchema>() -> RequestBody {
    RequestBodyBuilder::new().required(Some(Required::True)).content(JSON, Content::new(Some(component::<T>()))).build()
}

/// Adds the two streamed forms to an answer.
pub(super) fn or_streamed(mut response: Response) -> Response {
    for media in [MEDIA_MULTIPLEXED, MEDIA_EVENTS] {
        response.content.insert(media.to_owned(), Content::new(Some(text())).into());
    }
    response.headers.insert("X-Process-Id".to_owned(), response_header("of a streamed answer: the call").into());
    response
}
