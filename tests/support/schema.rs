//! Real answers held against docs/openapi.yaml.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Value, json};

/// Asserts that `answer` is what the committed document calls `name` (a key of `components.schemas`).
///
/// Stricter than the document: a field that it does not describe is a fault too. Readers ignore such fields; our own
/// agent has no reason to send one.
#[track_caller]
pub fn check(name: &str, answer: &Value) {
    let faults = faults(name, answer);
    assert!(faults.is_empty(), "not a {name} of docs/openapi.yaml:\n{}\n{answer:#}", faults.join("\n"));
}

/// What of `answer` is not as the document says.
pub fn faults(name: &str, answer: &Value) -> Vec<String> {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let validator = {
        let mut validators = VALIDATORS.lock().unwrap();
        Arc::clone(validators.entry(name.to_owned()).or_insert_with(|| Arc::new(compile(name))))
    };
    validator.iter_errors(answer).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn compile(name: &str) -> Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.yaml");
    let mut document: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    assert!(schemas.contains_key(name), "docs/openapi.yaml has no schema {name}");
    for schema in schemas.values_mut().filter(|schema| schema.get("properties").is_some()) {
        schema["additionalProperties"] = json!(false);
    }
    // OpenAPI 3.1 schemas are JSON Schema 2020-12; references point into the document, so it stays the root
    document["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    document["$ref"] = json!(format!("#/components/schemas/{name}"));
    jsonschema::validator_for(&document).unwrap()
}
