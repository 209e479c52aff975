//! Who changed what: one line for each change, none for what is refused or only read, and no secrets.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{Agent, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent with an audit file in a folder of its own.
fn audited() -> (Agent, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit");
    let agent = Agent::with(&["--audit-file", file.to_str().unwrap(), "--log-format", "json"]);
    (agent, folder, file)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for the lines of a request, and returns them.
#[track_caller]
fn of(path: &Path, id: &str) -> Vec<Value> {
    let mine = || lines(path).into_iter().filter(|line| line["id"] == id).collect::<Vec<_>>();
    wait_for("the line", PATIENCE, || !mine().is_empty());
    mine()
}

#[test]
fn each_change_is_one_line_and_nothing_else_is() {
    let (agent, _folder, file) = audited();
    let call = |method: &str, path: &str, id: &str, body: &Value| {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        agent.call(method, path, &[("x-request-id", id), ("content-type", "application/json")], &body).answer()
    };
    let script = |text: &str| BASE64_STANDARD.encode(text);
    let mut ids = Vec::new();
    let mut change = |method: &str, path: &str, id: &'static str, body: Value, status: u16| {
        let answer = call(method, path, id, &body);
        assert_eq!(answer.status, status, "{id}: {answer:?}");
        ids.push(id);
        answer
    };
    let timeout = 30;
    drop(change(
        "POST",
        "/exec",
        "run",
        json!({"script": script("exit 3"), "session": "s", "timeout_sec": timeout}),
        200,
    ));
    drop(change("POST", "/exec", "bad", json!({}), 400));
    drop(change("POST", "/system/time", "clock", json!({}), 400));
    let started = change(
        "POST",
        "/exec",
        "detached",
        json!({"argv": ["sleep", "100"], "detach": true, "open_stdin": true, "session": "s"}),
        202,
    );
    let id = started.json["process_id"].as_str().unwrap().to_owned();
    drop(change("POST", &format!("/processes/{id}/stdin"), "stdin", json!("x"), 200));
    drop(change("DELETE", &format!("/processes/{id}/stdin"), "close", Value::Null, 204));
    drop(change("POST", &format!("/processes/{id}/signal"), "signal", json!({"signal": "CONT"}), 200));
    drop(change("DELETE", "/sessions/s", "session", Value::Null, 200));
    drop(change("DELETE", &format!("/processes/{id}"), "end", Value::Null, 200));
    drop(change("DELETE", "/exec/run", "cancel", Value::Null, 204));
    drop(change("DELETE", "/processes/p-none", "none", Value::Null, 404));
    let mut attached = agent.attach_as(&json!({"argv": ["true"]}), &[("x-request-id", "attached")]);
    assert_eq!(attached.rest().rc(), 0);
    ids.push("attached");

    for id in &ids {
        assert_eq!(of(&file, id).len(), 1, "{id}: {:?}", of(&file, id));
    }
    // joins the call that is there, and changes nothing
    let again = json!({"script": script("exit 3"), "session": "s", "timeout_sec": timeout});
    assert_eq!(call("POST", "/exec", "run", &again).json["rc"], 3);
    for path in ["/whoami", "/processes", "/sessions", "/logs?tail=1", "/system/sockets", "/system/time"] {
        assert_eq!(call("GET", path, "read", &Value::Null).status, 200);
    }
    for (method, path) in
        [("POST", "/exec"), ("DELETE", "/sessions/s"), ("DELETE", "/processes/x"), ("POST", "/system/time")]
    {
        agent.http(method, path).header("X-Request-Id", "refused").send().is_error(401, "unauthorized");
    }
    agent.stop();
    let all = lines(&file);
    assert_eq!(all.len(), ids.len(), "{all:#?}");
    let one = |id: &str| all.iter().find(|line| line["id"] == id).unwrap();
    for line in &all {
        assert_eq!((&line["target"], &line["level"]), (&json!("audit"), &json!("INFO")));
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:") && line["ms"].is_u64(), "{line}");
    }
    let run = one("run");
    assert_eq!((&run["action"], &run["rc"], &run["outcome"]), (&json!("exec"), &json!(3), &json!("exited")));
    assert_eq!(run["script_sha256"], "f83f8905b4f3be6305a76adaa981467528d13853f18cc464da8221c06bf35411");
    assert_eq!((&run["session"], &run["script"]), (&json!("s"), &Value::Null));
    assert_eq!((&one("bad")["outcome"], &one("none")["outcome"]), (&json!("bad_request"), &json!("not_found")));
    assert_eq!((&one("clock")["action"], &one("clock")["outcome"]), (&json!("time.set"), &json!("bad_request")));
    assert_eq!((&one("detached")["program"], &one("detached")["outcome"]), (&json!("sleep"), &json!("cancelled")));
    assert_eq!((&one("signal")["detail"], &one("signal")["process_id"]), (&json!("CONT"), &json!(id)));
    assert_eq!((&one("session")["session"], &one("cancel")["request"]), (&json!("s"), &json!("run")));
    assert_eq!((&one("attached")["mode"], &one("attached")["rc"]), (&json!("attached"), &json!(0)));
    assert!(!agent.log().contains("\"audit\""), "they are in their own file alone");
}

#[test]
fn an_attachment_to_a_known_call_is_a_line() {
    let (agent, _folder, file) = audited();
    let id = agent.spawn(&json!({"argv": ["cat"], "open_stdin": true}));
    let mut attached = agent.websocket(&format!("/processes/{id}/attach"), &[("x-request-id", "joined")]);
    assert_eq!(agent.delete(&format!("/processes/{id}?keep=true")).status, 200);
    drop(attached.rest());
    let joined = of(&file, "joined");
    assert_eq!((joined.len(), &joined[0]["action"], &joined[0]["process_id"]), (1, &json!("attach"), &json!(id)));
    assert_eq!(joined[0]["outcome"], "the call ended");
}

#[test]
fn no_secret_is_there_unless_scripts_are_asked_for() {
    const SECRET: &str = "hunter2-of-the-test";
    let call = |agent: &Agent| {
        let script = format!("echo {SECRET}-script >/dev/null # {}", "é".repeat(40_000));
        let body = json!({
            "script": BASE64_STANDARD.encode(script), "env": {"PASSWORD": format!("{SECRET}-env")},
            "stdin": BASE64_STANDARD.encode(format!("{SECRET}-stdin")), "timeout_sec": 30,
        });
        assert_eq!(agent.post("/exec", &body).json["rc"], 0);
        let argv = json!({"argv": ["true", format!("--password={SECRET}-argv")], "timeout_sec": 30});
        assert_eq!(agent.post_with("/exec", &argv, &[("x-request-id", "second")]).json["rc"], 0);
        wait_for("the line", PATIENCE, || agent.log().contains("program=\"true\""));
        agent.log()
    };
    let log = call(&Agent::start());
    assert!(log.contains("audit: change") && !log.contains(SECRET));
    // no filter silences them
    let told = call(&Agent::launch(&["--audit-scripts"], &[("PODLINK_LOG", "off")]));
    assert!(told.contains(&format!("{SECRET}-script")));
    assert!(told.contains("bytes more)"), "cut where it is long");
    for other in ["env", "stdin", "argv"] {
        assert!(!told.contains(&format!("{SECRET}-{other}")), "{other}");
    }
}
