//! The agent's log: every line with its request's id, files that are turned over, and `GET /logs`.

use std::{
    collections::BTreeSet,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Agent, Port, agent::write_private, schema, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// All of a log, the oldest file first.
fn whole(path: &Path) -> String {
    let mut files: Vec<PathBuf> =
        (1..100).map(|number| PathBuf::from(format!("{}.{number}", path.display()))).collect();
    files.retain(|path| path.exists());
    files.reverse();
    files.push(path.to_owned());
    files.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
}

/// The lines of a JSON log; each has to be one object.
#[track_caller]
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn every_line_of_a_request_bears_its_id_and_is_json() {
    let agent = Agent::with(&["--log-format", "json"]);
    let request = json!({"argv": ["sh", "-c", "echo x; exit 3"], "timeout_sec": 20});
    assert_eq!(agent.post_with("/exec", &request, &[("x-request-id", "mine")]).status, 200);
    let frames = podlink::protocol::MEDIA_MULTIPLEXED;
    drop(agent.begin_stream(frames, &request, &[("x-request-id", "streamed")]).rest());
    let path = "/nothing/%0A%1b%22";
    assert_eq!(agent.call("GET", path, &[("x-request-id", "odd")], b"").answer().status, 404);
    for (id, message) in [("mine", "call ended"), ("mine", "request"), ("streamed", "call ended"), ("odd", "request")] {
        wait_for("the line with its id", PATIENCE, || {
            let all = json_lines(&agent.log());
            all.iter().any(|line| line["id"] == id && line["message"] == message)
        });
    }
    for line in json_lines(&agent.log()) {
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line["level"].is_string(), "{line}");
        // what says which call or request it is of says it by the request's id
        assert!(line["process_id"].is_null() || line["id"].is_string(), "{line}");
    }
}

#[test]
fn a_line_of_text_is_one_line_whatever_is_in_it() {
    let agent = Agent::start();
    let before = "INFO request{id=forged}: a line";
    let name = format!("/none%0A2026-01-01T00:00:00Z%20{}", before.replace(' ', "%20"));
    assert_eq!(agent.call("GET", &name, &[("x-request-id", "mine")], b"").answer().status, 404);
    wait_for("the line", PATIENCE, || agent.log().contains("request{id=mine}"));
    assert!(agent.log().lines().all(|line| line.starts_with("20") && !line.starts_with("2026-01-01")));
}

#[test]
fn files_are_turned_over_and_a_reader_loses_nothing() {
    let agent = Agent::with(&["--log-max-bytes", "3000", "--log-files", "90", "--log-format", "json"]);
    let log = agent.folder().join("log");
    let follower = Follower::begin(&agent, "follow=true&tail=0");
    let ids: Vec<String> = (0..60).map(|number| format!("id-{number}")).collect();
    for id in &ids {
        assert_eq!(agent.call("GET", "/whoami", &[("x-request-id", id)], b"").answer().status, 200);
    }
    let expected: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let is_answer = |line: &Value| line["message"] == "request" && line["path"] == "/whoami";
    let answered = |lines: &[Value]| -> Vec<String> {
        let lines = lines.iter().filter(|line| is_answer(line));
        lines.filter_map(|line| line["id"].as_str().map(str::to_owned)).filter(|id| id.starts_with("id-")).collect()
    };
    wait_for("all lines", PATIENCE, || answered(&json_lines(&whole(&log))).len() == ids.len());
    assert!(Path::new(&format!("{}.1", log.display())).exists(), "it was turned over");
    // by the wire, from before the first
    let mut seen = Vec::new();
    wait_for("all lines over the wire", PATIENCE, || {
        seen =
            follower.lines().iter().map(|line| serde_json::from_str(line["text"].as_str().unwrap()).unwrap()).collect();
        answered(&seen).len() >= ids.len()
    });
    let seen = answered(&seen);
    assert_eq!(seen.len(), expected.len(), "each once");
    assert_eq!(seen.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    // and it ends with the agent
    agent.stop();
    assert!(follower.ended());
}

#[test]
fn a_removed_file_is_made_anew() {
    let agent = Agent::start();
    let log = agent.folder().join("log");
    std::fs::remove_file(&log).unwrap();
    assert_eq!(agent.call("GET", "/whoami", &[("x-request-id", "after")], b"").answer().status, 200);
    wait_for("the new file", PATIENCE, || agent.log().contains("after"));
    assert_eq!(std::fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_full_disk_stops_nothing() {
    // the device that is always full
    let agent = Agent::with(&["--log-file", "/dev/full", "--audit-file", "/dev/full"]);
    for _ in 0..50 {
        let answer = agent.post("/exec", &json!({"argv": ["true"], "timeout_sec": 20}));
        assert_eq!(answer.json["rc"], 0, "{answer:?}");
    }
    agent.stop();
}

#[test]
fn two_agents_have_one_log() {
    let top = tempfile::tempdir().unwrap();
    let log = top.path().join("shared");
    let flags =
        ["--log-file", log.to_str().unwrap(), "--log-max-bytes", "3000", "--log-files", "90", "--log-format", "json"];
    let two = [Agent::with(&flags), Agent::with(&flags)];
    std::thread::scope(|scope| {
        for (number, agent) in two.iter().enumerate() {
            scope.spawn(move || {
                for count in 0..40 {
                    let id = format!("{number}-{count}");
                    assert_eq!(agent.call("GET", "/whoami", &[("x-request-id", &id)], b"").answer().status, 200);
                }
            });
        }
    });
    two.iter().for_each(Agent::stop);
    let lines = json_lines(&whole(&log));
    for number in 0..2 {
        for count in 0..40 {
            let id = format!("{number}-{count}");
            let said = lines.iter().filter(|line| line["id"] == *id && line["message"] == "request").count();
            assert_eq!(said, 1, "{id}");
        }
    }
}

#[test]
fn old_logs_are_swept_and_the_one_in_use_is_not() {
    let top = tempfile::tempdir().unwrap();
    let log = top.path().join("log");
    let old = top.path().join("log.3");
    let age = |path: &Path| {
        let file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_hours(31 * 24)).unwrap();
    };
    age(&log);
    age(&old);
    std::fs::write(top.path().join("log.1"), "new\n").unwrap();
    let agent = Agent::with(&["--log-file", log.to_str().unwrap(), "--sweep-interval", "100"]);
    wait_for("the sweep at the start", PATIENCE, || !old.exists());
    age(&old);
    wait_for("another", PATIENCE, || !old.exists());
    assert!(log.exists() && top.path().join("log.1").exists() && agent.lives());
}

/// An agent without a log file.
struct Fileless {
    child: Child,
    port: Port,
    token: String,
    _folder: tempfile::TempDir,
}

impl Drop for Fileless {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn without_a_file_the_newest_lines_are_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let token = podlink::token::Token::generate().unwrap().expose().to_string();
    write_private(&folder.path().join("token"), &token);
    let port = Port::reserve();
    let mut command = Command::new(env!("CARGO_BIN_EXE_podlink"));
    command.args(["agent", "serve", "--listen", &format!("127.0.0.1:{}", port.number()), "--token-file"]);
    command.arg(folder.path().join("token")).stdin(Stdio::null()).stdout(Stdio::null());
    // a pipe that nobody reads
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let agent = Fileless { child, port, token, _folder: folder };
    let get = |path: &str| {
        std::net::TcpStream::connect(("127.0.0.1", agent.port.number())).ok()?;
        Some(crate::support::Http::new(agent.port.number(), "GET", path).bearer(&agent.token).send())
    };
    wait_for("the agent", PATIENCE, || get("/whoami").is_some_and(|answer| answer.status == 200));
    for _ in 0..2000 {
        assert_eq!(get("/nothing/to/be/found/here/but/a/line/in/the/log").unwrap().status, 404);
    }
    let answer = get("/logs?tail=3").unwrap();
    assert_eq!(answer.status, 200);
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(body.matches("/nothing/to/be/found").count() == 3, "{body}");
}

#[test]
fn logs_are_asked_for_by_source_and_time() {
    let install = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(install.path(), "2026-01-01T00:00:00Z one\r\nits rest\n2026-02-01T00:00:00Z two\nlast").unwrap();
    let agent = Agent::with(&["--install-log", install.path().to_str().unwrap(), "--ready-file", "/proc/self/exe"]);
    let texts = |query: &str| {
        let answer = agent.call("GET", &format!("/logs?{query}"), &[], b"").answer();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        let lines = json_lines(&unchunked(&answer.body));
        for line in &lines {
            schema::check("LogLine", line);
        }
        lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["2026-01-01T00:00:00Z one", "its rest", "2026-02-01T00:00:00Z two", "last"];
    assert_eq!(texts("source=install"), all);
    assert_eq!(texts("source=install&tail=2"), all[2..]);
    assert_eq!(texts("source=install&since=2026-01-15T00:00:00Z"), all[2..]);
    assert_eq!(texts("source=install&since=2027-01-15T00:00:00Z"), [""; 0]);
    assert!(texts("").iter().any(|line| line.contains("agent started")));
    // the requests themselves are logged meanwhile
    for tail in (0..30).map(|n| n % 3) {
        assert_eq!(texts(&format!("tail={tail}")).len(), tail);
    }
    for bad in ["source=none", "tail=-1", "follow=maybe", "since=yesterday"] {
        agent.get(&format!("/logs?{bad}")).is_error(400, "bad_request");
    }
    agent.http("GET", "/logs").send().is_error(401, "unauthorized");
    Agent::start().get("/logs?source=install").is_error(404, "not_found");
    // one that is not there yet is waited for
    let later = agent.folder().join("later");
    let agent = Agent::with(&["--install-log", later.to_str().unwrap()]);
    agent.get("/logs?source=install").is_error(404, "not_found");
    let follower = Follower::begin(&agent, "source=install&follow=true");
    std::fs::write(&later, "begun\n").unwrap();
    wait_for("the line", PATIENCE, || follower.lines().iter().any(|line| line["text"] == "begun"));
}

/// A body in chunks, put together.
fn unchunked(body: &[u8]) -> String {
    let (mut rest, mut whole) = (body, Vec::new());
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let Ok(len) = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16) else { break };
        if len == 0 || rest.len() < end + 2 + len {
            break;
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + len]);
        rest = rest.get(end + 4 + len..).unwrap_or_default();
    }
    String::from_utf8(whole).unwrap()
}

/// A reader of `/logs` on a thread of its own.
struct Follower {
    bytes: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
    reading: std::thread::JoinHandle<()>,
}

impl Follower {
    fn begin(agent: &Agent, query: &str) -> Self {
        let pending = agent.call("GET", &format!("/logs?{query}"), &[], b"");
        let bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = std::sync::Arc::clone(&bytes);
        let reading = std::thread::spawn(move || {
            let (mut stream, mut chunk) = (pending.0, [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut chunk) {
                kept.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        let follower = Self { bytes, reading };
        wait_for("the head", PATIENCE, || follower.text().contains("\r\n\r\n"));
        follower
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// The whole lines so far.
    fn lines(&self) -> Vec<Value> {
        let text = self.text();
        let body = unchunked(text.split_once("\r\n\r\n").unwrap().1.as_bytes());
        let end = body.rfind('\n').map_or(0, |at| at + 1);
        body[..end].lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for the end of the answer: whether it came, as it should.
    fn ended(self) -> bool {
        let Self { bytes, reading } = self;
        wait_for("the end", PATIENCE, || reading.is_finished());
        let bytes = bytes.lock().unwrap();
        bytes.ends_with(b"0\r\n\r\n")
    }
}
