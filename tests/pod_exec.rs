//! `podlink pod exec` and `pod status`, the real command. The agents are fakes where they break, lie, or must answer
//! what no program on this machine would.

use std::{
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::support::{
    Cli, Port,
    fake::{Fake, Reply, Request, http, proved, whoami, write_pod},
    wait_for,
};

struct Pod {
    home: tempfile::TempDir,
    fake: Fake,
    token: podlink::token::Token,
}

/// A pod whose agent is ready and answers `/exec` so.
fn pod(exec: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Pod {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = write_pod(home.path(), port.number(), "");
    let holder = token.clone();
    let fake = Fake::start_on(port, move |request, _| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &holder, "a", "ready")),
        "/whoami" => Reply::Bytes(whoami()),
        _ => exec(request),
    });
    Pod { home, fake, token }
}

impl Pod {
    fn exec(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod", "exec", "--pod", "fake"], args].concat()).home(self.home.path())
    }

    fn sent(&self) -> serde_json::Value {
        serde_json::from_slice(&self.fake.requests_for("POST", "/exec").last().unwrap().body).unwrap()
    }
}

fn answers(body: &'static str) -> impl Fn(&Request) -> Reply + Send + Sync {
    move |_| Reply::Bytes(http(200, "", body))
}

#[test]
fn output_and_code_are_the_programs() {
    let pod = pod(answers(r#"{"rc":7,"stdout":"ok\n","stderr":"err\n"}"#));
    let run = pod.exec(&["echo ok"]).run().exits(7);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("ok\n", "err\n"));
    let run = pod.exec(&["--json", "echo ok"]).run().exits(7);
    assert_eq!(run.json()["rc"], 7);
    assert_eq!(run.json()["stdout"], "ok\n");
}

#[test]
fn bytes_are_exact() {
    let pod = pod(answers(r#"{"rc":0,"stdout":"\ufffd","stdout_b64":"/wD+DQo=","stderr":""}"#));
    let output = pod.exec(&["x"]).command().stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.stdout, [0xff, 0, 0xfe, 13, 10]);
}

#[test]
fn codes_beyond_a_byte_and_time_outs_are_told() {
    for (body, code, said) in [
        (r#"{"rc":256,"stdout":"","stderr":""}"#, 1, "256"),
        (r#"{"rc":3221225477,"stdout":"","stderr":""}"#, 5, "3221225477"),
        (r#"{"rc":124,"stdout":"","stderr":"","timed_out":true}"#, 124, "timed out"),
        (r#"{"rc":0,"stdout":"","stderr":"","truncated":true,"stdout_bytes":999}"#, 0, "999"),
    ] {
        let run = pod(answers(body)).exec(&["x"]).run().exits(code);
        assert!(run.stderr.contains(said), "{body}: {}", run.stderr);
    }
}

#[test]
fn arguments_become_the_call() {
    let pod = pod(answers(r#"{"rc":0,"stdout":"","stderr":""}"#));
    drop(pod.exec(&["--", "prog", "a b", "--json", ""]).run().exits(0));
    assert_eq!(pod.sent()["argv"], serde_json::json!(["prog", "a b", "--json", ""]));
    assert!(pod.sent().get("script").is_none());

    let args = ["--shell", "bash", "--timeout", "1.5", "--env", "A=b=c", "--env", "FROM", "--env-clear", "--cwd", "/x"];
    drop(pod.exec(&[&args[..], &["--stdin", "-", "cat"]].concat()).env("FROM", "here").stdin(b"in").run().exits(0));
    let expected = serde_json::json!({
        "script": "Y2F0", "shell": "bash", "timeout_sec": 1.5, "env": {"A": "b=c", "FROM": "here"}, "env_clear": true,
        "cwd": "/x", "stdin": "aW4=",
    });
    assert_eq!(pod.sent(), expected);

    for wrong in [&["a", "b"][..], &[], &["-"], &["--timeout", "0", "x"], &["--env", "NOT_SET", "x"], &["x", "--", "y"]]
    {
        drop(pod.exec(wrong).run().exits(2));
    }
    let run = pod.exec(&["--stdin", "-"]).stdin(b"echo").run().exits(2);
    assert!(run.stderr.contains("the input of a script, which is missing"), "{}", run.stderr);
}

/// A `while read` loop around the command keeps its lines: stdin that is not asked for is not touched.
#[test]
fn stdin_is_left_alone() {
    let pod = pod(answers(r#"{"rc":0,"stdout":"x\n","stderr":""}"#));
    let (reader, writer) = std::io::pipe().unwrap();
    // the pipe stays open and empty: whoever reads it hangs
    let output = pod.exec(&["x"]).command().stdin(reader).stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success());
    drop(writer);
}

/// N-01: the environment names a proxy; it sees nothing.
#[test]
fn proxies_of_the_environment_are_not_used() {
    let proxy = Fake::start(|_, _| Reply::Bytes(http(200, "", "proxy")));
    let pod = pod(answers(r#"{"rc":0,"stdout":"direct","stderr":""}"#));
    let url = format!("http://{}", proxy.address());
    for args in [&["exec", "x"][..], &["wait-ready", "--timeout", "5"], &["status"]] {
        let mut cli = Cli::new([&["pod"], args].concat()).home(pod.home.path()).env("PODLINK_POD", "fake");
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
            cli = cli.env(name, &url);
        }
        drop(cli.run().exits(0));
    }
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn a_guest_that_boots_is_told_at_once_and_waited_for_on_demand() {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = write_pod(home.path(), port.number(), "");
    let tries = AtomicUsize::new(0);
    let fake = Fake::start_on(port, move |request, _| {
        let stage = if tries.load(Ordering::SeqCst) < 5 { "installing" } else { "ready" };
        match request.path.as_str() {
            "/health" => {
                tries.fetch_add(1, Ordering::SeqCst);
                Reply::Bytes(proved(request, &token, "a", stage))
            }
            "/whoami" => Reply::Bytes(whoami()),
            _ if stage == "ready" => Reply::Bytes(http(200, "", r#"{"rc":0,"stdout":"done","stderr":""}"#)),
            _ => Reply::Bytes(http(503, "", r#"{"error":"not_ready","stage":"installing","waiting_for":["X"]}"#)),
        }
    });
    let run = Cli::new(["pod", "exec", "--pod", "fake", "x"]).home(home.path()).run().exits(125);
    assert!(run.stderr.contains("still booting: installing, waits for X"), "{}", run.stderr);
    assert!(run.took < Duration::from_secs(2), "{:?}", run.took);
    let before = fake.requests_for("POST", "/exec").len();
    let run = Cli::new(["pod", "exec", "--pod", "fake", "--wait", "20", "x"]).home(home.path()).run().exits(0);
    assert_eq!(run.stdout, "done");
    assert_eq!(fake.requests_for("POST", "/exec").len(), before + 1, "delivered once");
}

#[test]
fn failures_have_their_words() {
    let pod = pod(|_| Reply::Die);
    let run = pod.exec(&["--json", "x"]).run().exits(125);
    assert_eq!(run.json()["error"], "agent_lost");
    assert_eq!(run.json()["exit_code"], 125);
    assert!(run.took < Duration::from_secs(3), "{:?}", run.took);
    let run = pod.exec(&["--json", "x"]).run().exits(125);
    assert_eq!(run.json()["error"], "refused");
    assert!(run.json()["hint"].as_str().unwrap().contains("podlink pod up --pod fake"));
    let run = pod.exec(&["x"]).run().exits(125);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    let run = Cli::new(["pod", "exec", "--pod", "none", "x"]).home(pod.home.path()).run().exits(125);
    assert!(run.stderr.contains("podlink setup --pod none"), "{}", run.stderr);
}

#[test]
fn the_output_of_a_call_that_the_agent_ended_is_not_lost() {
    let pod = pod(|_| {
        Reply::Bytes(http(503, "", r#"{"error":"agent_stopping","started":true,"stdout":"half","stderr":"e"}"#))
    });
    let run = pod.exec(&["x"]).run().exits(125);
    assert_eq!(run.stdout, "half");
    assert!(run.stderr.contains("going down"), "{}", run.stderr);
}

#[test]
fn signals_end_the_call_in_the_guest() {
    for (signal, code) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let pod = pod(|request| match request.method.as_str() {
            "DELETE" => Reply::Bytes(http(200, "", "{}")),
            _ => Reply::Silence,
        });
        let mut child = pod.exec(&["x"]).command().stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the call", Duration::from_secs(10), || !pod.fake.requests_for("POST", "/exec").is_empty());
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let call = &pod.fake.requests_for("POST", "/exec")[0];
        let cancelled = &pod.fake.requests_for("DELETE", "/exec/")[0];
        assert_eq!(cancelled.path, format!("/exec/{}", call.header("x-request-id").unwrap()));
    }
}

#[test]
fn a_squatter_sees_no_token_from_any_command() {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = write_pod(home.path(), port.number(), "");
    let fake = Fake::start_on(port, |_, _| Reply::Bytes(http(200, "", r#"{"ok":true}"#)));
    let run = |args: &[&str]| Cli::new([&["pod"], args].concat()).home(home.path()).env("PODLINK_POD", "fake").run();
    let failed = run(&["exec", "--json", "x"]).exits(125);
    assert_eq!(failed.json()["error"], "foreign_program");
    let status = run(&["status", "--json"]).exits(0);
    assert_eq!(status.json()["agent"]["seen"], "foreign");
    assert_eq!(status.json()["ready"], false);
    fake.never_saw(&token);
}

#[test]
fn status_tells_what_is() {
    let pod = pod(answers("{}"));
    let run = Cli::new(["pod", "status", "--pod", "fake", "--json"]).home(pod.home.path()).run().exits(0);
    let status = run.json();
    assert_eq!((&status["ready"], &status["token"]), (&true.into(), &"ok".into()));
    assert_eq!(status["agent"]["health"]["version"], "0.1.0");
    let run = Cli::new(["pod", "status", "--pod", "fake"]).home(pod.home.path()).run().exits(0);
    assert!(run.stdout.contains("token      ok"), "{}", run.stdout);
    assert!(!run.stdout.contains(pod.token.expose().as_str()));
}

/// winpodx' agent has no proof, no ids and no `/whoami`; the pod's setting admits it.
#[test]
fn an_agent_of_another_kind_is_driven_where_the_setting_says_so() {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = write_pod(home.path(), port.number(), "agent: winpodx\n");
    let bearer = format!("Bearer {}", token.expose().as_str());
    let fake = Fake::start_on(port, move |request, _| match request.path.as_str() {
        "/health" => Reply::Bytes(http(200, "", r#"{"started_at":"x","version":"0.2.3","ok":true}"#)),
        _ if request.header("authorization") != Some(&bearer) => {
            Reply::Bytes(http(401, "", r#"{"error":"unauthorized"}"#))
        }
        "/exec" => Reply::Bytes(http(200, "", r#"{"rc":5,"stderr":"","stdout":"ok\r\n"}"#)),
        _ => Reply::Bytes(http(404, "", r#"{"error":"not_found"}"#)),
    });
    let run = Cli::new(["pod", "exec", "--pod", "fake", "--wait", "5", "x"]).home(home.path()).run().exits(5);
    assert_eq!(run.stdout, "ok\r\n");
    assert!(fake.requests_for("POST", "/exec")[0].header("x-request-id").is_none());
}
