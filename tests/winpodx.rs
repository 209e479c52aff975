//! The host's commands with winpodx' agent on the other side.
//!
//! What answers here is a recording: the bodies are those that the real agent, version 0.2.3, gave when it was run, and
//! which of them comes is decided as its source does. It runs no script.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use podlink::token::Token;
use serde_json::Value;

use crate::support::{
    Cli, Port,
    cli::Run,
    fake::{Fake, Reply, Request, http, write_pod},
    wait_for,
};

const JSON: &str = "Content-Type: application/json; charset=utf-8\r\nServer: Microsoft-HTTPAPI/2.0\r\n";

/// A pod whose agent is the recording.
struct Recorded {
    home: tempfile::TempDir,
    fake: Fake,
    token: Token,
}

impl Recorded {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = Port::reserve();
        let token = write_pod(home.path(), port.number(), "agent: winpodx\n");
        let bearer = format!("Bearer {}", token.expose().as_str());
        let fake = Fake::start_on(port, move |request, _| answer(request, &bearer));
        Self { home, fake, token }
    }

    fn pod(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod"], args].concat()).home(self.home.path()).env("PODLINK_POD", "fake")
    }

    /// What `/exec` was sent.
    fn calls(&self) -> Vec<Value> {
        let calls = self.fake.requests_for("POST", "/exec");
        calls.iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect()
    }
}

fn answer(request: &Request, bearer: &str) -> Reply {
    let (status, body) = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/health") => (200, r#"{"started_at":"2026-11-29T17:03:10.0817217Z","version":"0.2.3","ok":true}"#),
        _ if request.header("authorization") != Some(bearer) => (401, r#"{"error":"unauthorized"}"#),
        ("POST", "/exec") => {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let script = body["script"].as_str().and_then(|script| STANDARD.decode(script).ok());
            match script.as_deref() {
                None => (400, r#"{"detail":"missing script field","error":"bad_request"}"#),
                Some(b"exit 0") => (200, r#"{"rc":0,"stderr":"","stdout":""}"#),
                Some(b"Start-Sleep 600") => (200, r#"{"rc":124,"stderr":"timeout","stdout":""}"#),
                // the words of its source, for what could not be brought about
                Some(b"(access violation)") => (200, r#"{"rc":-1073741819,"stderr":"","stdout":""}"#),
                Some(b"(no PowerShell)") => (500, r#"{"detail":"spawn_failed","error":"exec_failed"}"#),
                Some(b"(long)") => return Reply::Silence,
                Some(b"(cut)") => return Reply::Close,
                Some(_) => (200, r#"{"rc":5,"stderr":"","stdout":"ok\r\n"}"#),
            }
        }
        _ => (404, r#"{"error":"not_found"}"#),
    };
    Reply::Bytes(http(status, JSON, body))
}

#[test]
fn wait_ready_waits_for_it() {
    let pod = Recorded::start();
    let run = pod.pod(&["wait-ready", "--timeout", "5"]).run().exits(0);
    assert!(run.took < Duration::from_secs(4), "{:?}", run.took);
    assert!(pod.calls().is_empty(), "nothing is run to find out");
}

#[test]
fn wait_ready_tells_another_token() {
    let pod = Recorded::start();
    let other = Token::generate().unwrap();
    podlink::token::replace_private(
        &pod.home.path().join("fake").join(podlink::token::TOKEN_FILE),
        other.expose().as_bytes(),
    )
    .unwrap();
    let run = pod.pod(&["wait-ready", "--timeout", "20"]).run().exits(12);
    assert!(run.stderr.contains("refuses this pod's token"), "{}", run.stderr);
    assert!(!run.stderr.contains(other.expose().as_str()) && !run.stderr.contains(pod.token.expose().as_str()));
    let status = pod.pod(&["status", "--json"]).run().exits(0).json();
    assert_eq!((&status["token"], &status["ready"]), (&"mismatch".into(), &false.into()));
}

#[test]
fn status_tells_what_it_cannot() {
    let pod = Recorded::start();
    let run = pod.pod(&["status"]).run().exits(0);
    for line in ["agent      ready", "version    0.2.3", "token      ok", "ready      yes"] {
        assert!(run.stdout.contains(line), "{}", run.stdout);
    }
    let limits = run.stdout.lines().find(|line| line.starts_with("limits ")).unwrap();
    assert!(limits.contains("PowerShell scripts and no more") && limits.contains("jobs"), "{limits}");
    let status = pod.pod(&["status", "--json"]).run().exits(0).json();
    assert_eq!((&status["agent"]["kind"], &status["ready"]), (&"winpodx".into(), &true.into()));
    assert!(status["agent"]["limits"].as_str().unwrap().contains("winpodx'"));
}

#[test]
fn doctor_finds_it_well_and_tells_what_it_cannot() {
    let pod = Recorded::start();
    let report = pod.pod(&["doctor", "--json"]).run().json();
    let check = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        (check["status"].as_str().unwrap().to_owned(), check["seen"].as_str().unwrap().to_owned())
    };
    for name in ["port", "version", "token", "exec"] {
        assert_eq!(check(name).0, "ok", "{name}: {}", check(name).1);
    }
    assert!(check("version").1.contains("0.2.3") && check("version").1.contains("PowerShell scripts and no more"));
    assert!(check("token").1.contains("cannot prove"), "{}", check("token").1);
    assert_eq!(pod.calls().len(), 1, "one script that does nothing");
}

#[test]
fn exec_runs_scripts_and_its_answers_mean_what_ours_would() {
    let pod = Recorded::start();
    let run = pod.pod(&["exec", "'ok'; exit 5"]).run().exits(5);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("ok\r\n", ""));
    let result = pod.pod(&["exec", "--json", "--timeout", "2.5", "--shell", "powershell", "x"]).run().exits(5).json();
    assert_eq!((&result["rc"], &result["stdout"], &result["stdout_bytes"]), (&5.into(), &"ok\r\n".into(), &4.into()));
    let timed_out = pod.pod(&["exec", "Start-Sleep 600"]).run().exits(124);
    assert!(timed_out.stderr.starts_with("podlink: the program timed out after"), "{}", timed_out.stderr);
    let crashed = pod.pod(&["exec", "--json", "(access violation)"]).run().exits(5);
    assert_eq!(crashed.json()["rc"], 0xC000_0005_u32);
    let failed = pod.pod(&["exec", "(no PowerShell)"]).run().exits(125);
    assert!(failed.stderr.contains("spawn_failed"), "{}", failed.stderr);

    let calls = pod.calls();
    let asked: Vec<&Value> = calls.iter().map(|call| &call["timeout_sec"]).collect();
    assert_eq!(asked[..3], [&Value::from(300), &3.into(), &300.into()], "no limit is its longest, and whole seconds");
    for call in &pod.fake.requests_for("POST", "/exec") {
        assert!(call.header("x-request-id").is_none() && call.header("podlink-protocol").is_none(), "{}", call.head);
    }
}

/// It would pass over these without a word, and run the script all the same.
#[test]
fn what_a_call_needs_and_it_has_not_is_refused_before_anything_runs() {
    let pod = Recorded::start();
    for (args, says) in [
        (&["--", "notepad.exe", "a b"][..], "by its arguments"),
        (&["--shell", "cmd", "dir"], "another shell"),
        (&["--shell", "pwsh", "x"], "another shell"),
        (&["-w", "C:\\", "x"], "Set-Location"),
        (&["-e", "A=b", "x"], "$env:NAME"),
        (&["--env-clear", "x"], "variables"),
        (&["--session", "s", "x"], "session"),
        (&["--stdin", "/dev/null", "x"], "stdin"),
        (&["-i", "x"], "input"),
        (&["-t", "x"], "terminals"),
        (&["-d", "x"], "jobs"),
    ] {
        for form in [&[][..], &["--json"]] {
            if form == ["--json"] && ["-i", "-t"].contains(&args[0]) {
                continue;
            }
            let run = pod.pod(&[&["exec"], form, args].concat()).run().exits(125);
            let said = if form.is_empty() { &run.stderr } else { &run.stdout };
            assert!(said.contains("winpodx") && said.contains(says), "{args:?}: {said}");
            if !form.is_empty() {
                assert_eq!(run.json()["error"], "unsupported");
            }
        }
    }
    assert!(pod.calls().is_empty());
}

#[test]
fn other_commands_say_what_it_cannot_at_once() {
    let pod = Recorded::start();
    for args in [
        &["info"][..],
        &["ps"],
        &["top"],
        &["stats"],
        &["sessions"],
        &["time-sync"],
        &["kill", "p-1"],
        &["wait", "p-1"],
        &["attach", "p-1"],
        &["logs", "p-1"],
        &["shell"],
        &["events"],
        &["events", "--once", "exec.started", "--timeout", "20"],
    ] {
        let run: Run = pod.pod(args).run().exits(125);
        assert!(run.stderr.contains("winpodx") && run.stderr.contains("podlink"), "{args:?}: {}", run.stderr);
        assert!(run.took < Duration::from_secs(3), "{args:?}: {:?}", run.took);
    }
    // what this side sees by itself is there
    let run = pod.pod(&["events", "--once", "pod.state", "--timeout", "2"]).run().exits(10);
    assert!(!run.stderr.contains("winpodx"), "{}", run.stderr);
    let unreached = pod.fake.requests();
    assert!(unreached.iter().all(|request| !request.path.starts_with("/events")), "{unreached:?}");
}

#[test]
fn a_call_that_broke_is_not_made_again() {
    let pod = Recorded::start();
    let run = pod.pod(&["exec", "(cut)"]).run().exits(125);
    assert!(run.stderr.contains("whether the script finished is not known"), "{}", run.stderr);
    assert_eq!(pod.calls().len(), 1, "it has no request ids: a second try would run it twice");
}

#[test]
fn an_interrupted_call_runs_on_and_that_is_said() {
    let pod = Recorded::start();
    let mut command = pod.pod(&["exec", "(long)"]).command();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the call", Duration::from_secs(10), || !pod.calls().is_empty());
    let begun = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("runs on in the guest"), "{ended:?}");
    assert!(pod.fake.requests_for("DELETE", "/").is_empty());
}
