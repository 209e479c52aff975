//! The wire as an `OpenAPI` document, built from the very types that go over it. Data only.
//!
//! `docs/openapi.yaml` is this document written out; `tests/openapi.rs` holds the two together. To offer a new
//! endpoint, add its operation and its types in the file of its subject and run that test once with `PODLINK_BLESS=1`.

mod basics;
mod calls;
mod events;
mod logs;
mod parts;
mod system;

use utoipa::openapi::{
    Components, ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder, RefOr,
    ServerBuilder,
    schema::Schema,
    security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

use self::parts::{Schemas, named};
use super::{DEFAULT_PORT, ErrorBody, PROTOCOL_VERSION};

/// The name of the one security scheme.
const BEARER: &str = "bearer";

const DESCRIPTION: &str = "What the agent in the guest offers, protocol version 1; docs/protocol.md says it in words. \
    Every path but /health needs the bearer token: without it every other path, known or not, answers 401.";

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
        .paths(events::paths(logs::paths(system::paths(calls::paths(basics::paths(PathsBuilder::new()))))))
        .components(Some(components()))
        .security(Some([SecurityRequirement::new(BEARER, [] as [&str; 0])]))
        .build()
}

/// The types, with all that they name.
fn components() -> Components {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("64 hex digits")
        .description(Some("the pod's token: agent_token.txt in its folder"))
        .build();
    let mut schemas = Schemas::new();
    basics::schemas(&mut schemas);
    calls::schemas(&mut schemas);
    system::schemas(&mut schemas);
    events::schemas(&mut schemas);
    logs::schemas(&mut schemas);
    named::<ErrorBody>(&mut schemas);
    let mut components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .build();
    for schema in components.schemas.values_mut() {
        tidy(schema);
    }
    components
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
    use crate::protocol::PATH_HEALTH;

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
