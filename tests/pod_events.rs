//! The host's stream of events over links that break, and `pod events`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use podlink::{
    host::{AgentClient, AgentEvent, Error, ErrorKind, EventItem, EventStream, EventsPatience, EventsRequest},
    token::Token,
};
use serde_json::{Value, json};

use crate::support::{
    Agent, Cli, Port,
    agent::write_private,
    fake::{Fake, Reply, http, proved, settings},
    link::Link,
    wait_for,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn token(agent: &Agent) -> Token {
    Token::parse(agent.token().as_bytes()).unwrap()
}

/// A stream over this link, with patience that suits a test.
fn stream(link: &Link, agent: &Agent, types: &[&str]) -> EventStream {
    let patience = EventsPatience {
        keep_alive: Duration::from_millis(200),
        first_retry: Duration::from_millis(10),
        longest_retry: Duration::from_millis(100),
    };
    let types = types.iter().map(ToString::to_string).collect();
    let client = AgentClient::new(link.address(), token(agent), settings()).unwrap();
    client.events(EventsRequest { types, patience, ..EventsRequest::ALL })
}

async fn next(events: &mut EventStream) -> EventItem {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("something in time").unwrap()
}

async fn next_event(events: &mut EventStream) -> AgentEvent {
    loop {
        if let EventItem::Event(event) = next(events).await {
            return event;
        }
    }
}

async fn disconnected(events: &mut EventStream) -> Error {
    loop {
        match next(events).await {
            EventItem::Disconnected(error) => return error,
            EventItem::Connected => {}
            EventItem::Event(event) => panic!("{event:?}"),
        }
    }
}

async fn error(events: &mut EventStream) -> Error {
    let ended = async {
        loop {
            if let Err(error) = events.next().await {
                return error;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("an end in time")
}

fn run(agent: &Agent) -> Value {
    agent.post("/exec", &json!({"argv": ["true"]})).json["process_id"].clone()
}

/// S-04, S-08: the link is cut in the middle of the sixth event, and three more come meanwhile.
#[tokio::test]
async fn after_a_cut_each_event_comes_exactly_once() {
    let agent = Agent::with(&["--events-keep-alive", "50"]);
    let link = Link::to(agent.port());
    let mut events = stream(&link, &agent, &["exec.exited"]);
    assert!(matches!(next(&mut events).await, EventItem::Connected));
    let mut ran: Vec<Value> = Vec::new();
    let mut told: Vec<Value> = Vec::new();
    for _ in 0..5 {
        ran.push(run(&agent));
        told.push(next_event(&mut events).await.data["process_id"].clone());
    }
    link.cut_after(150);
    ran.push(run(&agent));
    disconnected(&mut events).await;
    assert!(link.is_cut());
    for _ in 7..=9 {
        ran.push(run(&agent));
    }
    link.mend();
    for _ in 6..=9 {
        told.push(next_event(&mut events).await.data["process_id"].clone());
    }
    ran.push(run(&agent));
    told.push(next_event(&mut events).await.data["process_id"].clone());
    assert_eq!(told, ran);
}

/// The first connection breaks before any event has come: those of meanwhile are not lost.
#[tokio::test]
async fn a_cut_before_the_first_event_loses_nothing() {
    let agent = Agent::with(&["--events-keep-alive", "50"]);
    let link = Link::to(agent.port());
    let mut events = stream(&link, &agent, &["exec.exited"]);
    assert!(matches!(next(&mut events).await, EventItem::Connected));
    // nothing but its place and signs of life can come
    while events.last_id().is_empty() {
        drop(tokio::time::timeout(Duration::from_millis(20), events.next()).await);
    }
    link.cut();
    let ran = run(&agent);
    disconnected(&mut events).await;
    link.mend();
    assert_eq!(next_event(&mut events).await.data["process_id"], ran);
}

/// A peer that is frozen: no byte, no end.
#[tokio::test]
async fn a_dead_peer_is_noticed_within_three_signs_of_life() {
    let agent = Agent::with(&["--events-keep-alive", "50"]);
    let link = Link::to(agent.port());
    let mut events = stream(&link, &agent, &["exec.exited"]);
    assert!(matches!(next(&mut events).await, EventItem::Connected));
    let quiet = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
    assert!(quiet.is_err(), "signs of life keep a quiet stream: {quiet:?}");
    link.hold(true);
    let begun = Instant::now();
    let error = disconnected(&mut events).await;
    assert_eq!(error.kind(), ErrorKind::Silent, "{error}");
    let took = begun.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&took), "{took:?}");
    let ran = run(&agent);
    link.hold(false);
    assert_eq!(next_event(&mut events).await.data["process_id"], ran);
}

#[tokio::test]
async fn another_agent_is_told_as_one_gap() {
    let (first, second) = (Agent::start(), Agent::start());
    write_private(&second.token_file(), first.token());
    wait_for("the token", PATIENCE, || second.http("GET", "/whoami").bearer(first.token()).send().status == 200);
    let link = Link::to(first.port());
    let mut events = stream(&link, &first, &["agent.*", "exec.exited"]);
    assert!(matches!(next(&mut events).await, EventItem::Connected));
    run(&first);
    next_event(&mut events).await;
    link.lead_to(second.port());
    first.stop();
    assert_eq!(next_event(&mut events).await.name, "agent.stopping");
    let names: Vec<String> = vec![
        next_event(&mut events).await.name,
        next_event(&mut events).await.name,
        next_event(&mut events).await.name,
    ];
    assert_eq!(names, ["gap", "agent.started", "agent.ready"]);
}

#[tokio::test]
async fn what_will_not_go_away_ends_it() {
    let agent = Agent::start();
    let link = Link::to(agent.port());
    let mut events = stream(&link, &agent, &["token.*"]);
    assert!(matches!(next(&mut events).await, EventItem::Connected));
    write_private(&agent.token_file(), &"cd".repeat(32));
    assert_eq!(next_event(&mut events).await.name, "token.rotated");
    assert_eq!(error(&mut events).await.kind(), ErrorKind::TokenMismatch);

    let mut events = stream(&link, &Agent::start(), &[]);
    assert_eq!(error(&mut events).await.kind(), ErrorKind::TokenMismatch);

    // agents that refuse it, that know no events, and that send something else
    let token = Token::generate().unwrap();
    let endless =
        [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ".to_vec(), vec![b'x'; 1 << 20]].concat();
    for (answer, kind) in [
        (http(401, "", r#"{"error":"unauthorized"}"#), ErrorKind::TokenMismatch),
        (http(400, "", r#"{"error":"bad_request","detail":"types"}"#), ErrorKind::Rejected),
        (http(200, "Content-Type: text/html\r\n", "<html>"), ErrorKind::ForeignProgram),
        (endless, ErrorKind::ForeignProgram),
    ] {
        let holder = token.clone();
        let fake = Fake::start(move |request, _| match request.path.as_str() {
            "/health" => Reply::Bytes(proved(request, &holder, "agent-1", "ready")),
            _ => Reply::Bytes(answer.clone()),
        });
        let client = AgentClient::new(fake.address(), token.clone(), settings()).unwrap();
        assert_eq!(error(&mut client.events(EventsRequest::ALL)).await.kind(), kind);
    }
}

/// A local pod; taken down when dropped.
struct LocalPod {
    home: tempfile::TempDir,
    port: Port,
}

impl LocalPod {
    fn up() -> Self {
        let pod = Self { home: tempfile::tempdir().unwrap(), port: Port::reserve() };
        let port = pod.port.number().to_string();
        pod.cli(&["setup", "--engine", "local", "--agent-port", &port]).run().exits(0);
        pod.cli(&["pod", "up"]).run().exits(0);
        pod.cli(&["pod", "wait-ready", "--timeout", "30"]).run().exits(0);
        pod
    }

    fn cli(&self, args: &[&str]) -> Cli {
        Cli::new(args).home(self.home.path())
    }
}

impl Drop for LocalPod {
    fn drop(&mut self) {
        drop(self.cli(&["pod", "down"]).run());
    }
}

/// A running `pod events`; killed when dropped.
struct Shown {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Shown {
    fn start(cli: &Cli) -> Self {
        let mut command = cli.command();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that holds `text`.
    fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before {text}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn pod_events_shows_the_agents_and_the_hosts() {
    let pod = LocalPod::up();
    let mut lines = Shown::start(&pod.cli(&["pod", "events", "--output"]));
    let mut json = Shown::start(&pod.cli(&["pod", "events", "--json", "--types", "exec.*,pod.*"]));
    lines.line_with("pod.connected");
    json.line_with("pod.connected");
    pod.cli(&["pod", "exec", "--", "printf", "\\033[31m\\r\\nhello"]).run().exits(0);
    let line = lines.line_with("exec.output");
    assert!(!line.trim_end().contains(char::is_control) && line.contains("hello"), "{line:?}");
    let exited: Value = serde_json::from_str(&json.line_with("exec.exited")).unwrap();
    assert_eq!((&exited["source"], &exited["data"]["rc"]), (&json!("agent"), &json!(0)));
    assert!(exited["id"].is_string() && exited["ts"] == exited["data"]["ts"], "{exited}");

    pod.cli(&["pod", "down"]).run().exits(0);
    lines.line_with("agent.stopping");
    let lost: Value = serde_json::from_str(&json.line_with("pod.disconnected")).unwrap();
    assert_eq!(lost["source"], "host");
    let stopped: Value = loop {
        let state: Value = serde_json::from_str(&json.line_with("pod.state")).unwrap();
        if state["data"]["state"] != "ready" && state["data"]["previous"] == "ready" {
            break state;
        }
    };
    assert_eq!((&stopped["source"], &stopped["data"]["pod"]), (&json!("host"), &json!("windows")));
    // it is waited for, and what it tells anew is shown
    pod.cli(&["pod", "up"]).run().exits(0);
    lines.line_with("gap");
    lines.line_with("agent.ready");
}

#[test]
fn pod_events_once() {
    let pod = LocalPod::up();
    let started = pod.cli(&["pod", "events", "--once", "agent.started", "--since", "0", "--json"]).run().exits(0);
    assert_eq!(started.stdout.lines().count(), 1);
    assert_eq!(started.json()["name"], "agent.started");
    let begun = Instant::now();
    let missed = pod.cli(&["pod", "events", "--once", "exec.exited", "--timeout", "0.5"]).run().exits(10);
    assert!(missed.stdout.is_empty() && missed.stderr.contains("no exec.exited within 0.5 s"), "{}", missed.stderr);
    assert!(begun.elapsed() < Duration::from_secs(10));
    pod.cli(&["pod", "events", "--once", "exec.exitd"]).run().exits(125);
    pod.cli(&["pod", "events", "--types", "pod.nonsense"]).run().exits(125);
    pod.cli(&["pod", "events", "--timeout", "1"]).run().exits(2);
}
