//! `podlink pod exec` and `pod status`, the real command. The agents are fakes where they break, lie, or must answer
//! what no program on this machine would.

use std::{
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::support::{
    Cli, LocalPod, Port,
    fake::{Fake, Reply, Request, frames, http, proved, whoami, write_pod},
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

/// Whole where that is what was asked for, else the same as frames.
fn answers(body: &'static str) -> impl Fn(&Request) -> Reply + Send + Sync {
    move |request| {
        if request.header("accept").is_none_or(|accept| !accept.contains("multiplexed-stream")) {
            return Reply::Bytes(http(200, "", body));
        }
        let mut result: serde_json::Value = serde_json::from_str(body).unwrap();
        let output = ["stdout", "stderr"].map(|stream| {
            let text = result[stream].take().as_str().unwrap_or_default().as_bytes().to_vec();
            let encoded = result[format!("{stream}_b64")].take();
            result[stream] = "".into();
            encoded.as_str().map_or(text, |encoded| STANDARD.decode(encoded).unwrap())
        });
        let end = result.to_string();
        Reply::Bytes(frames("p-1", &[(1, &output[0]), (2, &output[1]), (3, end.as_bytes())]))
    }
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

    drop(pod.exec(&["--session", "build_1", "--no-queue", "x"]).run().exits(0));
    assert_eq!((&pod.sent()["session"], &pod.sent()["queue"]), (&"build_1".into(), &false.into()));
    assert_eq!(pod.sent()["timeout_sec"], 0, "no limit where output streams");
    drop(pod.exec(&["--json", "x"]).run().exits(0));
    assert!(pod.sent().get("timeout_sec").is_none(), "the wire's own limit");

    for wrong in [
        &["a", "b"][..],
        &[],
        &["-"],
        &["--timeout", "-1", "x"],
        &["--env", "NOT_SET", "x"],
        &["x", "--", "y"],
        &["--session", "a b", "x"],
        &["--detach-keys", "ctrl-", "x"],
        &["-i", "--json", "x"],
        &["-i", "--stdin", "-", "x"],
    ] {
        drop(pod.exec(wrong).run().exits(2));
    }
    let run = pod.exec(&["--stdin", "-"]).stdin(b"echo").run().exits(2);
    assert!(run.stderr.contains("the input of a script, which is missing"), "{}", run.stderr);
}

/// Longer than the system takes a single argument.
#[test]
fn a_script_of_any_length_comes_from_a_file() {
    let pod = pod(answers(r#"{"rc":0,"stdout":"","stderr":""}"#));
    let script = format!("\u{feff}# {}\necho é", "x".repeat(500_000));
    let file = pod.home.path().join("long.ps1");
    std::fs::write(&file, &script).unwrap();
    let file = file.to_str().unwrap();
    let is_it = || assert!(pod.sent()["script"] == STANDARD.encode(&script).as_str());
    drop(pod.exec(&["--script-file", file]).run().exits(0));
    is_it();
    drop(pod.exec(&["--script-file", "-", "--json"]).stdin(script.as_bytes()).run().exits(0));
    is_it();
    drop(pod.exec(&["--script-file", file, "--stdin", "-"]).stdin(b"in").run().exits(0));
    assert_eq!(pod.sent()["stdin"], "aW4=");

    let calls = pod.fake.requests_for("POST", "/exec").len();
    drop(pod.exec(&["--script-file", "/no/such"]).run().exits(125));
    for wrong in
        [&["--script-file", "-", "-i"][..], &["--script-file", "-", "--stdin", "-"], &["--script-file", file, "x"]]
    {
        drop(pod.exec(wrong).run().exits(2));
    }
    assert_eq!(pod.fake.requests_for("POST", "/exec").len(), calls);
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
            _ if stage == "ready" => Reply::Bytes(frames("p-1", &[(1, b"done"), (3, br#"{"rc":0}"#)])),
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
        let end = br#"{"error":"agent_stopping","started":true}"#;
        Reply::Bytes(frames("p-1", &[(1, b"half"), (2, b"e"), (3, end)]))
    });
    let run = pod.exec(&["x"]).run().exits(125);
    assert_eq!(run.stdout, "half");
    assert!(run.stderr.starts_with('e') && run.stderr.contains("going down"), "{}", run.stderr);
}

#[test]
fn output_that_is_lost_is_said_and_no_success() {
    let pod = pod(|_| {
        let frames = frames("p-1", &[(1, b"be"), (4, br#"{"from":2,"to":12}"#), (1, b"end"), (3, br#"{"rc":0}"#)]);
        Reply::Bytes(frames)
    });
    let run = pod.exec(&["x"]).run().exits(125);
    assert_eq!(run.stdout, "beend");
    assert!(run.stderr.contains("10 bytes of the output are lost") && run.stderr.contains("from offset 2 to 12"));
}

/// The agent is told, does not answer, and is not waited for by somebody who presses Ctrl-C twice.
#[test]
fn a_second_signal_ends_it_at_once() {
    let pod = pod(|_| Reply::Silence);
    let mut child = pod.exec(&["x"]).command().stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the call", Duration::from_secs(10), || !pod.fake.requests_for("POST", "/exec").is_empty());
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    wait_for("the cancel", Duration::from_secs(10), || !pod.fake.requests_for("DELETE", "/exec/").is_empty());
    let second = std::time::Instant::now();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(second.elapsed() < Duration::from_secs(2), "{:?}", second.elapsed());
}

#[test]
fn an_agent_of_another_kind_says_what_it_cannot() {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    drop(write_pod(home.path(), port.number(), "agent: winpodx\n"));
    for args in [&["exec", "-i", "x"][..], &["exec", "-d", "x"], &["ps"], &["shell"], &["logs", "p-1"], &["top"]] {
        let run = Cli::new([&["pod"], args].concat()).env("PODLINK_POD", "fake").home(home.path()).run().exits(125);
        assert!(run.stderr.contains("winpodx"), "{args:?}: {}", run.stderr);
    }
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

#[test]
fn words_behind_a_script_are_told_how_they_would_be_right() {
    for (words, line) in [
        (&["exec", "ls", "-la"][..], "podlink pod exec -- ls -la"),
        (&["exec", "ls", "a b"], "podlink pod exec -- ls 'a b'"),
        (&["exec", "--nonsense"], "podlink pod exec -- PROG ARGS"),
    ] {
        let run = Cli::new([&["pod"], words].concat()).run().exits(2);
        assert!(run.stderr.contains(line), "{}", run.stderr);
        assert!(!run.stderr.contains("to pass '"), "{}", run.stderr);
    }
}

#[test]
fn no_time_limit_is_a_limit_of_none() {
    let pod = LocalPod::ready();
    pod.pod(&["exec", "--timeout", "0", "-e", "A=b", "-w", "/", "test $A = b && exit 5"]).run().exits(5);
    pod.pod(&["exec", "-i", "--timeout", "0", "exit 5"]).stdin(b"").run().exits(5);
    let run = pod.pod(&["exec", "--json", "--timeout", "0", "true"]).run().exits(2);
    assert!(run.stdout.contains("needs a limit"), "{}", run.stdout);
    let run = pod.pod(&["exec", "--timeout", "0.3", "sleep 600 & wait"]).run().exits(124);
    assert!(
        run.stderr.starts_with("podlink: the program timed out after 0.")
            && run.stderr.contains("was killed (2 processes)"),
        "{}",
        run.stderr
    );
}
