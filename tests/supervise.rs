//! `podlink agent serve --supervise`: an agent that crashes is there again, and one that was told to stop is not.

use std::{
    io::{Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    Port,
    agent::write_private,
    http::{Pending, request},
    processes, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// What an issue promises.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// A supervisor with its agent; both are killed when dropped.
pub(crate) struct Supervised {
    pub(crate) parent: Child,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) port: Port,
    /// Agents that have been seen, since one whose parent is gone is nobody's child.
    seen: Vec<u32>,
}

fn command(program: &Path, folder: &Path, port: &Port, flags: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["agent", "serve", "--supervise", "--listen", &format!("127.0.0.1:{}", port.number())]);
    command.arg("--token-file").arg(folder.join("token")).arg("--runs-dir").arg(folder.join("runs"));
    command.arg("--log-file").arg(folder.join("log")).args(flags);
    command.env_remove("PODLINK_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn podlink() -> PathBuf {
    env!("CARGO_BIN_EXE_podlink").into()
}

impl Supervised {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut supervised = Self::launch(Port::reserve(), flags);
        supervised.wait_ready(None);
        supervised
    }

    /// One that need not answer.
    pub(crate) fn launch(port: Port, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = podlink::token::Token::generate().unwrap();
        write_private(&folder.path().join("token"), token.expose().as_str());
        let parent = command(&podlink(), folder.path(), &port, flags).spawn().unwrap();
        Self { parent, folder, port, seen: Vec::new() }
    }

    /// Waits until an agent answers that is not this one; its id.
    #[track_caller]
    pub(crate) fn wait_ready(&mut self, other_than: Option<&str>) -> String {
        let mut id = String::new();
        wait_for("an agent to be ready", PATIENCE, || {
            if let Some(health) = self.health() {
                id = health;
            }
            !id.is_empty() && other_than != Some(&id)
        });
        self.agent();
        id
    }

    /// The id of the agent that is ready, where there is one.
    pub(crate) fn health(&self) -> Option<String> {
        ready_on(self.port.number())
    }

    /// The one agent that its supervisor has.
    #[track_caller]
    pub(crate) fn agent(&mut self) -> u32 {
        let children = processes::children_of(self.parent.id());
        assert_eq!(children.len(), 1, "{}", self.log());
        self.seen.push(children[0]);
        children[0]
    }

    pub(crate) fn authorized(&self, method: &str, path: &str, body: &[u8]) -> Pending {
        let bearer = format!("Bearer {}", std::fs::read_to_string(self.folder.path().join("token")).unwrap());
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        Pending::send(self.port.number(), &request(method, path, &headers, body))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_for("the supervisor to end", PATIENCE, || {
            ended = self.parent.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

/// The id of the agent that is ready on this port, where there is one; it may be killed meanwhile.
pub(crate) fn ready_on(port: u16) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(&request("GET", "/health", &[], b"")).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    head.starts_with("HTTP/1.1 200").then(|| body["agent_id"].as_str().unwrap().to_owned())
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.parent.kill());
        drop(self.parent.wait());
        // of those that have been seen alone, and only where they still are what they were
        let ours = processes::mentioning(&self.folder.path().join("token").display().to_string());
        processes::kill(&ours);
    }
}

#[test]
fn a_killed_agent_is_back_within_seconds_and_once() {
    let mut supervised = Supervised::start(&[]);
    let mut id = supervised.wait_ready(None);
    for restarts in 1..=2 {
        let killed = supervised.agent();
        let begun = Instant::now();
        processes::signal(killed, Signal::KILL);
        let new = supervised.wait_ready(Some(&id));
        assert!(begun.elapsed() < BACK_WITHIN, "took {:?}", begun.elapsed());
        assert_ne!(supervised.agent(), killed);
        id = new;
        let log = supervised.log();
        assert_eq!(log.matches("the agent is gone: signal 9 (KILL)").count(), restarts, "{log}");
        assert_eq!(log.matches("agent started").count(), restarts + 1, "{log}");
    }
    assert_eq!(supervised.authorized("GET", "/whoami", b"").answer().json["agent_id"], id.as_str());
}

#[test]
fn what_runs_in_a_killed_agent_is_lost_and_the_next_one_serves() {
    let mut supervised = Supervised::start(&[]);
    let id = supervised.wait_ready(None);
    let seconds = processes::unique_seconds();
    let body = json!({"argv": ["sleep", seconds]}).to_string();
    let pending = supervised.authorized("POST", "/exec", body.as_bytes());
    wait_for("the call", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    processes::signal(supervised.agent(), Signal::KILL);
    supervised.wait_ready(Some(&id));
    drop(pending);
    let body = json!({"argv": ["sh", "-c", "exit 3"]}).to_string();
    assert_eq!(supervised.authorized("POST", "/exec", body.as_bytes()).answer().json["rc"], 3);
    processes::kill(&processes::with_args(&["sleep", &seconds]));
}

#[test]
fn an_ordered_stop_ends_both_whoever_is_told() {
    for tell_the_parent in [true, false] {
        let mut supervised = Supervised::start(&[]);
        let agent = supervised.agent();
        // a call that runs still has its answer: the request is passed on as it is
        let body = json!({"argv": ["sh", "-c", "sleep 0.5; echo done"]}).to_string();
        let pending = supervised.authorized("POST", "/exec", body.as_bytes());
        wait_for("the call", PATIENCE, || !processes::children_of(agent).is_empty());
        let told = if tell_the_parent { supervised.parent.id() } else { agent };
        processes::signal(told, Signal::TERM);
        assert_eq!(pending.answer().json["stdout"], "done\n");
        assert!(supervised.ends().success());
        assert!(supervised.health().is_none());
        let log = supervised.log();
        assert!(log.contains("ended in order") && !log.contains("starting it again"), "{log}");
    }
}

#[test]
fn one_that_keeps_crashing_is_started_less_and_less_often_and_the_log_says_why() {
    let port = Port::reserve();
    // a program that is no agent's holds the port
    let holder = std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    holder.set_nonblocking(true).unwrap();
    let answering = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let goes_on = answering.clone();
    let thread = std::thread::spawn(move || {
        while goes_on.load(std::sync::atomic::Ordering::SeqCst) {
            match holder.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    drop(stream.read(&mut [0; 4096]));
                    drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    });
    let flags = ["--restart-pause", "20", "--restart-pause-cap", "160", "--log-format", "json"];
    let mut supervised = Supervised::launch(port, &flags);
    let pauses = |log: &str| -> Vec<f64> {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter_map(|line| line["again_in_sec"].as_f64()).collect()
    };
    wait_for("some starts", PATIENCE, || pauses(&supervised.log()).len() >= 6);
    assert_eq!(pauses(&supervised.log())[..6], [0.02, 0.04, 0.08, 0.16, 0.16, 0.16]);
    let log = supervised.log();
    assert!(log.contains("exit code 125; it said: ") && log.contains("is held by another program"), "{log}");
    // the other program goes, and the agent is there
    answering.store(false, std::sync::atomic::Ordering::SeqCst);
    thread.join().unwrap();
    supervised.wait_ready(None);
}

#[test]
fn told_to_stop_between_two_starts_it_ends_at_once() {
    let mut supervised = Supervised::start(&["--restart-pause", "60000"]);
    processes::signal(supervised.agent(), Signal::KILL);
    wait_for("the pause", PATIENCE, || supervised.log().contains("starting it again"));
    processes::signal(supervised.parent.id(), Signal::TERM);
    assert!(supervised.ends().success());
    assert!(supervised.health().is_none());
}

#[test]
fn a_second_one_says_that_an_agent_runs_and_ends_well() {
    let mut supervised = Supervised::start(&[]);
    let id = supervised.wait_ready(None);
    let other = tempfile::tempdir().unwrap();
    let second = command(&podlink(), other.path(), &supervised.port, &[]).output().unwrap();
    assert!(second.status.success(), "{second:?}");
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.contains("an agent already runs") && said.contains(&id), "{said}");
    let log = std::fs::read_to_string(other.path().join("log")).unwrap();
    assert!(!log.contains("starting it again"), "{log}");
    assert_eq!(supervised.wait_ready(None), id, "the first is untouched");
    supervised.agent();
}

#[test]
fn an_agent_whose_supervisor_is_killed_goes_on_and_says_so() {
    let mut supervised = Supervised::start(&[]);
    let (id, agent) = (supervised.wait_ready(None), supervised.agent());
    supervised.parent.kill().unwrap();
    assert_eq!(supervised.ends().signal(), Some(9));
    wait_for("the agent to see it", PATIENCE, || supervised.log().contains("the supervisor is gone"));
    let body = json!({"argv": ["sh", "-c", "exit 3"]}).to_string();
    assert_eq!(supervised.authorized("POST", "/exec", body.as_bytes()).answer().json["rc"], 3);
    let second = command(&podlink(), supervised.folder.path(), &supervised.port, &[]).output().unwrap();
    assert!(second.status.success() && String::from_utf8_lossy(&second.stdout).contains(&id), "{second:?}");
    // it takes orders as ever
    processes::signal(agent, Signal::TERM);
    wait_for("the agent's end", PATIENCE, || supervised.health().is_none());
}

#[test]
fn an_agent_that_hangs_is_killed_once_its_end_was_asked_for_three_times() {
    let mut supervised = Supervised::start(&[]);
    let agent = supervised.agent();
    processes::signal(agent, Signal::STOP);
    for told in 1..=3 {
        processes::signal(supervised.parent.id(), Signal::TERM);
        wait_for("the word", PATIENCE, || supervised.log().matches("passing on").count() >= told);
    }
    assert_eq!(supervised.ends().code(), Some(137));
    assert!(processes::name_of(agent).is_empty());
}

#[test]
fn what_an_update_has_put_there_is_what_runs_next() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("podlink");
    std::fs::copy(podlink(), &program).unwrap();
    let mut supervised = Supervised::launch(Port::reserve(), &[]);
    supervised.parent.kill().unwrap();
    supervised.ends();
    wait_for("the port to be free", PATIENCE, || {
        processes::kill(&processes::mentioning(&supervised.folder.path().join("token").display().to_string()));
        supervised.health().is_none()
    });
    supervised.parent = command(&program, supervised.folder.path(), &supervised.port, &[]).spawn().unwrap();
    let id = supervised.wait_ready(None);
    let newer = folder.path().join("newer");
    std::fs::copy(podlink(), &newer).unwrap();
    std::fs::rename(&newer, &program).unwrap();
    let runs = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_ne!(runs(supervised.agent()), program, "the file that it was started from is gone");
    processes::signal(supervised.agent(), Signal::KILL);
    supervised.wait_ready(Some(&id));
    assert_eq!(runs(supervised.agent()), program);
}

#[test]
fn the_parent_is_small() {
    let supervised = Supervised::start(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", supervised.parent.id())).unwrap();
    let kib = |field: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    println!("supervisor: {} KiB resident, {} KiB of them its own", kib("VmRSS:"), kib("RssAnon:"));
    assert!(kib("RssAnon:") < 4096, "{status}");
    assert!(kib("Threads:") <= 2, "{status}");
}

#[test]
fn whoami_tells_what_started_the_agent() {
    for (flags, mode) in [
        (&[][..], "manual"),
        (&["--run-mode", "session"], "session"),
        (&["--run-mode", "service"], "service"),
        (&["--service"], "service"),
    ] {
        let agent = crate::support::Agent::with(flags);
        assert_eq!(agent.get("/whoami").json["mode"], mode);
    }
    // a supervisor that is the service tells its agent so
    let supervised = Supervised::start(&["--service"]);
    assert_eq!(supervised.authorized("GET", "/whoami", b"").answer().json["mode"], "service");
}

#[test]
fn what_cannot_be_started_at_all_is_an_error_and_no_loop() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let mut command = command(&podlink(), folder.path(), &port, &["--log-file", "/nowhere/at/all"]);
    let run = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "given twice: {run:?}");
    let flags = ["agent", "serve", "--supervise", "--log-file", "/nowhere/at/all"];
    let run = crate::support::Cli::new(flags).run().exits(125);
    assert!(run.stderr.contains("/nowhere/at/all"), "{}", run.stderr);
}
