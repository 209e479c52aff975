//! The agent's life: its start, a second one, its log, its files, its end.

use std::{
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Agent, Cli, Http, Port, agent::write_private, processes, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// `podlink agent serve` on this port, with files of its own in the folder.
fn serve(port: u16, folder: &std::path::Path, flags: &[&str]) -> Cli {
    let listen = format!("127.0.0.1:{port}");
    let token = folder.join("no-token").display().to_string();
    let runs = folder.join("runs").display().to_string();
    let own = ["agent", "serve", "--listen", &listen, "--token-file", &token, "--runs-dir", &runs];
    Cli::new(own.iter().chain(flags))
}

fn signal(agent: &Agent, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_second_agent_says_that_one_runs_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let first = Agent::start();
    let id = first.http("GET", "/health").send().json["agent_id"].as_str().unwrap().to_owned();
    let second = serve(first.port(), folder.path(), &[]).run().exits(0);
    assert!(second.stdout.contains("already runs and answers"), "{}", second.stdout);
    assert!(second.stdout.contains(&id) && second.stdout.contains(&first.port().to_string()), "{}", second.stdout);
    assert_eq!(second.stdout.lines().count(), 1);
    assert!(second.took < Duration::from_secs(5), "took {:?}", second.took);
    assert_eq!(first.http("GET", "/health").send().json["agent_id"], id.as_str(), "the first is untouched");

    // also where the first is not ready
    let waiting = Agent::launch_with_token(&[], &[], false);
    assert!(serve(waiting.port(), folder.path(), &[]).run().exits(0).stdout.contains("already runs"));
}

#[test]
fn two_started_at_once_end_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let start = || {
        let mut command = serve(port.number(), folder.path(), &[]).command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut agents = [start(), start(), start()];
    let mut ended = Vec::new();
    wait_for("all but one to end", PATIENCE, || {
        ended = agents.iter_mut().filter_map(|agent| agent.try_wait().unwrap()).collect();
        ended.len() == 2
    });
    assert!(ended.iter().all(std::process::ExitStatus::success), "{ended:?}");
    assert_eq!(Http::new(port.number(), "GET", "/health").send().status, 503);
    for agent in &mut agents {
        agent.kill().ok();
        agent.wait().unwrap();
    }
}

#[test]
fn another_program_on_the_port_is_told_by_name_of_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let listener = std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let refused = |what: &str| {
        let run = serve(port.number(), folder.path(), &["--log-file", "/dev/null"]).run().exits(125);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.contains(&format!("port {}", port.number())) && run.stderr.contains(what), "{}", run.stderr);
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        assert!(run.took < Duration::from_secs(8), "took {:?}", run.took);
    };
    refused("does not answer");
    let answer = |content: &'static str| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            listener.set_nonblocking(false).unwrap();
            // the silent question before this one may wait here still
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                drop(stream.read(&mut [0; 4096]));
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len());
                drop(stream.write_all((head + content).as_bytes()));
            }
        })
    };
    let thread = answer(r#"{"ok":true}"#);
    refused("not answer as an agent");
    thread.join().unwrap();
}

#[test]
fn an_address_that_is_not_here_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let elsewhere = format!("192.0.2.1:{}", port.number());
    let run =
        serve(port.number(), folder.path(), &["--listen", &elsewhere, "--log-file", "/dev/null"]).run().exits(125);
    assert!(run.stderr.contains(&elsewhere), "{}", run.stderr);
}

#[test]
fn several_addresses_are_one_agent() {
    let (v4, v6) = (Port::reserve(), Port::reserve());
    let (one, two) = (format!("127.0.0.2:{}", v4.number()), format!("[::1]:{}", v6.number()));
    let agent = Agent::with(&["--listen", &one, "--listen", &two]);
    let id = agent.http("GET", "/health").send().json["agent_id"].clone();
    for address in [one, two] {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Write::write_all(&mut stream, &agent.http("GET", "/health").head()).unwrap();
        let answer = crate::support::http::Pending(stream).answer();
        assert_eq!(answer.json["agent_id"], id, "{address}");
    }
}

#[test]
fn sigterm_ends_an_idle_agent_at_once() {
    for how in [Signal::TERM, Signal::INT] {
        let agent = Agent::with(&["--drain", "30"]);
        // a kept connection without a request does not hold it up
        let mut kept = agent.http("GET", "/health").without("Connection").begin();
        assert_eq!(kept.one_answer().status, 200);
        let begun = Instant::now();
        signal(&agent, how);
        wait_for("the agent's end", PATIENCE, || !agent.lives());
        assert!(begun.elapsed() < Duration::from_secs(2), "took {:?}", begun.elapsed());
        agent.stop(); // asserts the exit code
        assert!(kept.rest().is_empty());
        let log = agent.log();
        assert!(log.contains("stopping") && log.contains("stopped"), "{log}");
    }
}

#[test]
fn while_it_drains_it_says_so_and_takes_no_call() {
    let agent = Agent::with(&["--drain", "30"]);
    let folder = tempfile::tempdir().unwrap();
    let (begun, go) = (folder.path().join("begun"), folder.path().join("go"));
    let wait = format!(": > {}; until [ -e {} ]; do sleep 0.05; done; echo done", begun.display(), go.display());
    let call = agent.begin_post("/exec", &json!({"argv": ["sh", "-c", wait]}), &[]);
    wait_for("the call to run", PATIENCE, || begun.exists());
    agent.terminate();
    wait_for("the stage draining", PATIENCE, || agent.http("GET", "/health").send().json["stage"] == "draining");
    let health = agent.http("GET", "/health").send();
    assert_eq!((health.status, health.header("retry-after")), (503, Some("1")));
    let refused = agent.post("/exec", &json!({"argv": ["true"]}));
    assert_eq!(refused.is_error(503, "agent_stopping")["started"], false);
    agent.http("POST", "/exec").send().is_error(401, "unauthorized");
    assert_eq!(agent.get("/whoami").status, 200);

    // the call may end by itself, and its answer is the last thing that the agent does
    std::fs::write(&go, "").unwrap();
    let answer = call.answer();
    assert_eq!((answer.status, answer.json["stdout"].as_str()), (200, Some("done\n")));
    wait_for("the agent's end", PATIENCE, || !agent.lives());
}

#[test]
fn sigterm_ends_within_the_drain_time_whatever_runs() {
    let agent = Agent::with(&["--drain", "1"]);
    let seconds = processes::unique_seconds();
    let call = agent.begin_post("/exec", &json!({"argv": ["sleep", seconds]}), &[]);
    wait_for("the call to run", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    let begun = Instant::now();
    agent.terminate();
    let answer = call.answer();
    assert_eq!(answer.is_error(503, "agent_stopping")["started"], true);
    wait_for("the agent's end", PATIENCE, || !agent.lives());
    let took = begun.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(4)).contains(&took), "took {took:?}");
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
}

#[test]
fn a_second_signal_kills_what_runs() {
    let agent = Agent::with(&["--drain", "60"]);
    let seconds = processes::unique_seconds();
    let call = agent.begin_post("/exec", &json!({"argv": ["sleep", seconds]}), &[]);
    wait_for("the call to run", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    agent.terminate();
    wait_for("the stage draining", PATIENCE, || agent.http("GET", "/health").send().json["stage"] == "draining");
    let begun = Instant::now();
    agent.terminate();
    call.answer().is_error(503, "agent_stopping");
    wait_for("the agent's end", PATIENCE, || !agent.lives());
    assert!(begun.elapsed() < Duration::from_secs(4), "took {:?}", begun.elapsed());
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
}

#[test]
fn a_new_agent_takes_over_from_one_that_goes_down() {
    let folder = tempfile::tempdir().unwrap();
    let old = Agent::with(&["--drain", "2"]);
    let id = old.http("GET", "/health").send().json["agent_id"].clone();
    let seconds = processes::unique_seconds();
    let call = old.begin_post("/exec", &json!({"argv": ["sleep", seconds]}), &[]);
    wait_for("the call to run", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    old.terminate();
    wait_for("the stage draining", PATIENCE, || old.http("GET", "/health").send().json["stage"] == "draining");
    let mut command = serve(old.port(), folder.path(), &["--log-file", "/dev/null"]).command();
    let mut new = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    call.answer().is_error(503, "agent_stopping");
    wait_for("the old one's end", PATIENCE, || !old.lives());
    wait_for("the new one", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", old.port())).is_ok());
    let health = old.http("GET", "/health").send().json;
    assert_ne!(health["agent_id"], id);
    new.kill().unwrap();
    new.wait().unwrap();
}

#[test]
fn the_log_file_is_its_owners_alone_and_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("own.log");
    std::fs::write(&log, "what was there\n").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o644)).unwrap();
    let port = Port::reserve();
    let flags = ["--log-file", log.to_str().unwrap(), "--log-format", "json"];
    let mut command = serve(port.number(), folder.path(), &flags).command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the agent", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok());
    let request = Http::new(port.number(), "GET", "/some/path?secret=1").header("X-Request-Id", "mine");
    assert_eq!(request.send().status, 503);
    assert_eq!(Http::new(port.number(), "GET", "/health").send().status, 503);
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());

    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(first, "what was there");
    let lines: Vec<serde_json::Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<_> = lines.iter().filter(|line| line["message"] == "request").collect();
    assert_eq!(requests.len(), 1, "one line for each request, none for health: {text}");
    let line = requests[0];
    assert_eq!((&line["id"], &line["method"], &line["path"]), (&json!("mine"), &json!("GET"), &json!("/some/path")));
    assert_eq!((&line["status"], line["ms"].is_u64()), (&json!(503), true));
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(lines.last().unwrap()["message"] == "stopped", "the last line is written: {text}");
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let mut command = serve(port.number(), folder.path(), &[]).env("PODLINK_LOG", "debug").command();
    // a pipe holds 64 KiB; nobody takes anything out of this one
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the agent", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok());
    for _ in 0..2000 {
        assert_eq!(Http::new(port.number(), "GET", "/health").send().status, 503);
    }
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    wait_for("the agent's end", PATIENCE, || child.try_wait().unwrap().is_some());
}

#[test]
fn the_pid_file_is_locked_while_the_agent_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.pid");
    let agent = Agent::with(&["--pid-file", path.to_str().unwrap()]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.split_whitespace().next().unwrap(), agent.pid().to_string());
    let file = std::fs::File::open(&path).unwrap();
    assert!(file.try_lock().is_err(), "held while it lives");

    let port = Port::reserve();
    let flags = ["--pid-file", path.to_str().unwrap(), "--log-file", "/dev/null"];
    let other = serve(port.number(), folder.path(), &flags).run().exits(125);
    assert!(other.stderr.contains("agent.pid") && other.stderr.contains("another agent"), "{}", other.stderr);

    // what a call leaves behind does not hold it
    let seconds = processes::unique_seconds();
    let answer = agent.post("/exec", &json!({"argv": ["sh", "-c", format!("sleep {seconds} & true")]}));
    assert_eq!(answer.status, 200);
    agent.kill();
    file.try_lock().unwrap();
    processes::kill(&processes::with_args(&["sleep", &seconds]));
}

#[test]
fn wrong_flags_are_refused_with_what_would_be_right() {
    for (flag, value, hint) in [
        ("--allow-peer", "10.0.0.0/33", "CIDR"),
        ("--allow-host", "http://x", "without a scheme"),
        ("--allow-origin", "*", "scheme://host"),
        ("--listen", "8765", "invalid socket address"),
        ("--exec-slots", "0", "at least 1"),
        ("--exec-timeout-cap", "0", "1.."),
        ("--log-format", "xml", "text, json"),
    ] {
        let run = Cli::new(["agent", "serve", flag, value]).run().exits(2);
        assert!(run.stderr.contains(flag) && run.stderr.contains(hint), "{}", run.stderr);
    }
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none").join("log").display().to_string();
    let run = serve(1, folder.path(), &["--log-file", &nowhere]).run().exits(125);
    assert!(run.stderr.contains(&nowhere), "{}", run.stderr);
    let filter = serve(1, folder.path(), &[]).env("PODLINK_LOG", "podlink=loud").run().exits(125);
    assert!(filter.stderr.contains("PODLINK_LOG"), "{}", filter.stderr);
}

/// An agent may be the first process of a container: it inherits orphans and has to reap them.
#[test]
fn as_the_first_process_it_leaves_no_zombies() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = podlink::token::Token::generate().unwrap().expose().to_string();
    let file = folder.path().join("token");
    write_private(&file, &token);
    // a namespace of processes of its own; needs root
    let mut outer = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_podlink"), "agent", "serve"])
        .args(["--listen", &format!("127.0.0.1:{}", port.number()), "--token-file", file.to_str().unwrap()])
        .arg("--runs-dir")
        .arg(folder.path().join("runs"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let exec = |script: &str| {
        let body = serde_json::json!({ "argv": ["sh", "-c", script] }).to_string();
        let request = crate::support::http::request("POST", "/exec", &headers, body.as_bytes());
        crate::support::http::Pending::send(port.number(), &request).answer().json
    };
    let health = crate::support::http::request("GET", "/health", &[], b"");
    let mut started = false;
    wait_for("the agent to be ready", Duration::from_secs(20), || {
        // it listens before it has its token
        started = std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok()
            && crate::support::http::Pending::send(port.number(), &health).answer().status == 200;
        started || outer.try_wait().unwrap().is_some()
    });
    if !started {
        eprintln!("skipped: no namespace of processes can be made here");
        return;
    }
    for _ in 0..10 {
        assert_eq!(exec("(sleep 0.1 &); exit 3")["rc"], 3);
    }
    let zombies = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    wait_for("the orphans to be reaped", Duration::from_secs(10), || exec(zombies)["stdout"] == "0\n");
    outer.kill().unwrap();
    outer.wait().unwrap();
}
