//! `POST /agent/restart`, and the commands that ask for it: no answer is lost, and another agent comes.

use std::time::{Duration, Instant};

use podlink::token::{TOKEN_FILE, ensure_private_dir};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    supervise::Supervised,
    support::{Agent, Answer, Cli, agent::as_documented, agent::write_private, processes, wait_for},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn restart(supervised: &Supervised) -> Answer {
    as_documented("/agent/restart", supervised.authorized("POST", "/agent/restart", b"").answer())
}

/// A pod of the host's that reaches for an agent with this token.
fn pod(folder: &std::path::Path, port: u16, token: &str) -> impl Fn(&[&str]) -> Cli + use<> {
    let home = folder.join("pods");
    let dir = home.join("kept");
    ensure_private_dir(&dir).unwrap();
    write_private(
        &dir.join("pod.yaml"),
        &format!("engine: local\nguest: linux\nports: {{agent: {port}, rdp: 1, web: 2}}\n"),
    );
    write_private(&dir.join(TOKEN_FILE), token);
    move |args| Cli::new([&["pod"], args].concat()).home(&home).env("PODLINK_POD", "kept")
}

#[test]
fn calls_that_run_have_their_answers_and_another_agent_comes() {
    let mut supervised = Supervised::start(&[]);
    let id = supervised.wait_ready(None);
    let agent = supervised.agent();
    let body = json!({"argv": ["sh", "-c", "sleep 2; echo done; exit 3"]}).to_string();
    let pending = supervised.authorized("POST", "/exec", body.as_bytes());
    wait_for("the call", PATIENCE, || !processes::children_of(agent).is_empty());
    let begun = Instant::now();
    let accepted = restart(&supervised);
    assert_eq!((accepted.status, &accepted.json["agent_id"]), (202, &json!(id)));
    assert_eq!(accepted.json["drain_ms"], 5000);
    // at once: no call is taken, and who asks again is told the same
    supervised.authorized("POST", "/exec", body.as_bytes()).answer().is_error(503, "agent_stopping");
    assert_eq!(restart(&supervised).json, accepted.json);
    let answer = pending.answer();
    assert_eq!((&answer.json["stdout"], &answer.json["rc"]), (&json!("done\n"), &json!(3)));
    let new = supervised.wait_ready(Some(&id));
    // once the call has ended, and not at the end of what calls have
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
    assert_ne!(supervised.agent(), agent);
    let log = supervised.log();
    assert!(log.contains("to be started again, as it was asked to") && !log.contains("the agent is gone"), "{log}");
    assert_eq!(log.matches("agent started").count(), 2, "{log}");
    let audited = log.lines().find(|line| line.contains("action=\"agent.restart\"")).unwrap_or_else(|| panic!("{log}"));
    assert!(audited.contains(&id) && audited.contains("outcome=\"done\""), "{audited}");
    assert_eq!(supervised.authorized("GET", "/whoami", b"").answer().json["agent_id"], new.as_str());
}

#[test]
fn a_call_that_does_not_end_is_told_so() {
    let mut supervised = Supervised::start(&["--drain", "0"]);
    let id = supervised.wait_ready(None);
    let seconds = processes::unique_seconds();
    let body = json!({"argv": ["sh", "-c", format!("echo so far; sleep {seconds}")]}).to_string();
    let pending = supervised.authorized("POST", "/exec", body.as_bytes());
    wait_for("the call", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    assert_eq!(restart(&supervised).status, 202);
    let answer = pending.answer();
    answer.is_error(503, "agent_stopping");
    assert_eq!((&answer.json["started"], &answer.json["stdout"]), (&json!(true), &json!("so far\n")));
    supervised.wait_ready(Some(&id));
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
}

#[test]
fn who_is_told_to_stop_meanwhile_does_not_come_back() {
    let mut supervised = Supervised::start(&[]);
    let agent = supervised.agent();
    let body = json!({"argv": ["sleep", "2"]}).to_string();
    let pending = supervised.authorized("POST", "/exec", body.as_bytes());
    wait_for("the call", PATIENCE, || !processes::children_of(agent).is_empty());
    assert_eq!(restart(&supervised).status, 202);
    processes::signal(agent, Signal::TERM);
    assert_eq!(pending.answer().json["rc"], 0);
    assert!(supervised.ends().success());
    assert!(supervised.health().is_none());
    let log = supervised.log();
    assert_eq!(log.matches("agent started").count(), 1, "{log}");
}

#[test]
fn one_that_goes_down_for_good_says_so() {
    let mut supervised = Supervised::start(&[]);
    let agent = supervised.agent();
    let body = json!({"argv": ["sleep", "2"]}).to_string();
    let pending = supervised.authorized("POST", "/exec", body.as_bytes());
    wait_for("the call", PATIENCE, || !processes::children_of(agent).is_empty());
    processes::signal(agent, Signal::TERM);
    wait_for("the drain", PATIENCE, || supervised.health().is_none());
    restart(&supervised).is_error(503, "agent_stopping");
    assert_eq!(pending.answer().json["rc"], 0);
    assert!(supervised.ends().success());
}

#[test]
fn where_nobody_would_start_it_again_it_goes_on() {
    let agent = Agent::start();
    let refused = agent.post("/agent/restart", &json!({}));
    refused.is_error(501, "unsupported");
    assert!(refused.json["hint"].as_str().unwrap().contains("--supervise"), "{}", refused.json);
    assert_eq!(agent.get("/health").status, 200);
    agent.http("POST", "/agent/restart").send().is_error(401, "unauthorized");
    agent.call("GET", "/agent/restart", &[], b"").answer().is_error(405, "method_not_allowed");
    let text = [("content-type", "text/plain")];
    agent.call("POST", "/agent/restart", &text, b"{}").answer().is_error(415, "unsupported_media_type");
    let pod = pod(agent.folder(), agent.port(), agent.token());
    let run = pod(&["restart", "--agent"]).run().exits(125);
    assert!(run.stderr.contains("nothing would start this agent again"), "{}", run.stderr);

    // one whose supervisor was killed is on its own
    let mut supervised = Supervised::start(&[]);
    supervised.parent.kill().unwrap();
    supervised.ends();
    wait_for("the agent to see it", PATIENCE, || supervised.log().contains("the supervisor is gone"));
    restart(&supervised).is_error(501, "unsupported");
    assert!(supervised.health().is_some());
}

#[test]
fn the_host_waits_for_another_agent() {
    let mut supervised = Supervised::start(&[]);
    let token = std::fs::read_to_string(supervised.folder.path().join("token")).unwrap();
    let pod = pod(supervised.folder.path(), supervised.port.number(), &token);
    let id = supervised.wait_ready(None);
    let said: Value = pod(&["restart", "--agent", "--json"]).run().exits(0).json();
    assert_eq!((&said["pod"], &said["before"]), (&json!("kept"), &json!(id)));
    assert_ne!(said["agent_id"], id.as_str());
    assert_eq!(supervised.health().as_deref(), said["agent_id"].as_str());
    let run = pod(&["restart", "--agent"]).run().exits(0);
    assert!(run.stdout.contains("the agent of pod kept is up again"), "{}", run.stdout);
    // its new agent runs calls
    assert_eq!(pod(&["exec", "exit 3"]).run().exits(3).stdout, "");
    supervised.agent();
    drop(pod(&["restart", "--timeout", "5"]).run().exits(2));
}

/// A manager that does not keep its word.
#[test]
fn the_host_does_not_wait_for_ever() {
    let agent = Agent::with(&["--restarted-by-manager"]);
    let pod = pod(agent.folder(), agent.port(), agent.token());
    let run = pod(&["restart", "--agent", "--timeout", "1", "--json"]).run().exits(10);
    assert!(run.took < Duration::from_secs(5), "{:?}", run.took);
    assert!(!agent.lives());
}
