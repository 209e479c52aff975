//! docs/openapi.yaml is what the wire's types say, and says what the agent sends.

use std::path::Path;

use podlink::protocol::{
    ErrorBody, ErrorCode, ExecRequest, ExecResult, Health, InstallReport, InstallStep, Limits, RunMode, Stage,
    StepState, Whoami, openapi,
};
use serde_json::json;

use crate::support::schema;

const HEAD: &str = "# Written by tests/openapi.rs from src/protocol; do not edit.\n# To renew it: PODLINK_BLESS=1 cargo test --test it openapi\n";

#[test]
fn the_committed_document_is_the_types_own() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.yaml");
    let wanted = format!("{HEAD}{}", serde_yaml::to_string(&openapi()).unwrap());
    if std::env::var_os("PODLINK_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == wanted,
        "docs/openapi.yaml is not what src/protocol says; renew it: PODLINK_BLESS=1 cargo test --test it openapi\n{}",
        similar::TextDiff::from_lines(committed.as_str(), wanted.as_str()).unified_diff()
    );
}

#[test]
fn the_document_reads_back_as_what_was_written() {
    let text = serde_yaml::to_string(&openapi()).unwrap();
    let read: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(read, serde_json::to_value(openapi()).unwrap());
}

#[test]
fn values_of_the_types_fit_their_schemas() {
    let health = Health {
        ok: false,
        version: "0.1.0".into(),
        protocol: 1,
        started_at: "2026-11-29T14:00:00Z".into(),
        uptime_ms: 12,
        os: "linux".into(),
        arch: "x86_64".into(),
        agent_id: "a".into(),
        stage: Stage::Installing,
        waiting_for: vec!["/var/install.done".into()],
    };
    schema::check("Health", &serde_json::to_value(health).unwrap());
    let whoami = Whoami {
        user: "root".into(),
        session_id: 1,
        interactive: false,
        elevated: true,
        agent_id: "a".into(),
        version: "0.1.0".into(),
        features: vec!["exec.request_id".into()],
        limits: Limits { exec_slots: 16, max_json_body: 8 << 20, ..Limits::default() },
        mode: RunMode::Session,
        install: Some(InstallReport {
            complete: false,
            mode: RunMode::Session,
            version: "0.1.0".into(),
            steps: vec![InstallStep {
                name: "firewall".into(),
                state: StepState::Unavailable,
                required: false,
                reason: Some("no such program: netsh".into()),
                at: Some("2026-11-29T14:00:00Z".into()),
            }],
        }),
    };
    schema::check("Whoami", &serde_json::to_value(whoami).unwrap());
    let result = ExecResult { rc: 0xC000_0005, signal: Some(9), survivors: vec![7], ..ExecResult::default() };
    schema::check("ExecResult", &serde_json::to_value(result).unwrap());
    schema::check("ExecResult", &serde_json::to_value(ExecResult::default()).unwrap());
    let error =
        ErrorBody { started: Some(true), stdout: Some("so far".into()), ..ErrorBody::new(ErrorCode::Cancelled) };
    schema::check("ErrorBody", &serde_json::to_value(error).unwrap());
    schema::check("ExecRequest", &serde_json::to_value(ExecRequest::default()).unwrap());
    schema::check("ExecRequest", &json!({"script": "ZWNobyBvaw==", "timeout_sec": 5}));
}

#[test]
fn what_does_not_fit_is_found() {
    for (name, value, why) in [
        ("Health", json!({"ok": "yes"}), "another type"),
        ("Health", json!({}), "a field that is always there is missing"),
        ("Health", json!({"ok": true, "hostname": "h"}), "a field that is not described"),
        ("Health", json!({"ok": true, "stage": "unknown"}), "a stage that is never sent"),
        ("ErrorBody", json!({"error": "invented"}), "a code that is not described"),
        ("ErrorBody", json!({"error": "not_ready", "stage": "invented"}), "a word behind a reference"),
    ] {
        assert!(!schema::faults(name, &value).is_empty(), "{name} {value}: {why}");
    }
}
