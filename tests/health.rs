//! `/health` and `/whoami`: stages, gates, the proof, and what they tell.

use std::time::{Duration, Instant};

use podlink::token::{Challenge, Proof, Token};
use serde_json::{Value, json};

use crate::support::{Agent, agent::write_private, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_ready_agent_says_so() {
    let agent = Agent::start();
    let answer = agent.http("GET", "/health").send();
    assert_eq!(answer.status, 200);
    answer.is_stamped();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("retry-after").is_none());
    let health = &answer.json;
    assert_eq!((&health["ok"], &health["stage"], &health["protocol"]), (&json!(true), &json!("ready"), &json!(1)));
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["os"], std::env::consts::OS);
    assert_eq!(health["arch"], std::env::consts::ARCH);
    let started = health["started_at"].as_str().unwrap();
    assert!(started.len() == 20 && started.ends_with('Z') && started.as_bytes()[10] == b'T', "{started}");
    assert!(health.get("waiting_for").is_none());

    let again = agent.http("GET", "/health?x=1").send().json;
    assert_eq!(again["agent_id"], health["agent_id"]);
    assert!(again["uptime_ms"].as_u64().unwrap() >= health["uptime_ms"].as_u64().unwrap());
    let other = Agent::start().http("GET", "/health").send().json;
    assert_ne!(other["agent_id"], health["agent_id"]);
}

#[test]
fn head_is_answered_like_get() {
    let agent = Agent::start();
    let answer = agent.http("HEAD", "/health").send();
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    answer.is_stamped();
    assert!(answer.header("content-length").unwrap().parse::<usize>().unwrap() > 0);
}

#[test]
fn one_stage_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one.done"), folder.path().join("two.done"));
    let flags = ["--ready-file", one.to_str().unwrap(), "--ready-file", two.to_str().unwrap()];
    let agent = Agent::launch_with_token(&flags, &[], false);
    let in_stage = |stage: &str, waiting_for: Value| {
        let mut health = None;
        wait_for(stage, PATIENCE, || {
            let answer = agent.http("GET", "/health").send();
            let there = answer.json["stage"] == stage && answer.json["waiting_for"] == waiting_for;
            health = Some(answer);
            there
        });
        let health = health.unwrap();
        assert_eq!((health.status, health.header("retry-after")), (503, Some("1")));
        assert_eq!(health.json["ok"], false);
    };

    in_stage("waiting_for_token", json!([one, two]));
    for path in ["/whoami", "/exec", "/nothing"] {
        for request in [agent.http("GET", path), agent.authorized("GET", path)] {
            let answer = request.send();
            assert_eq!(answer.is_error(503, "not_ready")["stage"], "waiting_for_token");
        }
    }

    // what has failed will bring no token: nobody is to wait for one
    let word = one.with_extension("failed");
    fs_err::write(&word, "no network").unwrap();
    in_stage("install_failed", json!([format!("{}: no network", one.display())]));
    fs_err::remove_file(&word).unwrap();
    in_stage("waiting_for_token", json!([one, two]));

    write_private(&agent.token_file(), agent.token());
    in_stage("installing", json!([one, two]));
    let refused = agent.authorized("POST", "/exec").json(&json!({"script": ""})).send();
    assert_eq!(refused.header("retry-after"), Some("1"));
    let body = refused.is_error(503, "not_ready");
    assert_eq!((&body["stage"], &body["waiting_for"]), (&json!("installing"), &json!([one, two])));
    agent.http("POST", "/exec").json(&json!({"script": ""})).send().is_error(401, "unauthorized");
    assert_eq!(agent.authorized("GET", "/whoami").send().status, 200);

    fs_err::write(&one, "").unwrap();
    in_stage("installing", json!([two]));
    fs_err::write(two.with_extension("failed"), "no room on the disk\n").unwrap();
    in_stage("install_failed", json!([format!("{}: no room on the disk", two.display())]));
    let refused = agent.authorized("POST", "/exec").json(&json!({"script": ""})).send();
    assert_eq!(refused.is_error(503, "not_ready")["stage"], "install_failed");
    fs_err::write(&two, "").unwrap();
    wait_for("ready", PATIENCE, || agent.http("GET", "/health").send().status == 200);
    assert_eq!(agent.authorized("POST", "/exec").json(&json!({"argv": ["true"]})).send().status, 200);

    fs_err::remove_file(&one).unwrap();
    in_stage("installing", json!([one]));
}

#[test]
fn the_proof_is_given_to_a_challenge_alone() {
    let agent = Agent::start();
    let challenge = Challenge::generate().unwrap();
    let proof_of = |agent: &Agent| {
        let answer = agent.http("GET", "/health").header("Podlink-Challenge", &challenge.to_hex()).send();
        answer.header("podlink-proof").map(str::to_owned)
    };
    let proof = Proof::parse(proof_of(&agent).unwrap().as_bytes()).unwrap();
    let token = Token::parse(agent.token().as_bytes()).unwrap();
    assert!(proof == token.prove(&challenge));
    assert!(proof != Token::generate().unwrap().prove(&challenge));
    assert!(agent.http("GET", "/health").send().header("podlink-proof").is_none());

    for malformed in ["", "abc", &"g".repeat(64), &"a".repeat(66)] {
        agent.http("GET", "/health").header("Podlink-Challenge", malformed).send().is_error(400, "bad_request");
    }
    let twice = agent.http("GET", "/health").header("Podlink-Challenge", &challenge.to_hex());
    twice.header("Podlink-Challenge", &challenge.to_hex()).send().is_error(400, "bad_request");

    assert!(proof_of(&Agent::launch_with_token(&[], &[], false)).is_none(), "no token, no proof");
}

#[test]
fn a_changed_token_is_taken_within_two_seconds() {
    let agent = Agent::start();
    let (old, new) = (agent.token(), Token::generate().unwrap().expose().to_string());
    let whoami = |token: &str| agent.http("GET", "/whoami").bearer(token).send().status;
    assert_eq!((whoami(old), whoami(&new)), (200, 401));

    write_private(&agent.token_file(), &new);
    let begun = Instant::now();
    wait_for("the new token", PATIENCE, || whoami(&new) == 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "took {:?}", begun.elapsed());
    assert_eq!(whoami(old), 401, "the old one is dead");

    write_private(&agent.token_file(), "not a token");
    wait_for("the complaint", PATIENCE, || agent.log().contains("cannot be used"));
    assert_eq!(whoami(&new), 200, "a bad file takes nothing away");
}

#[test]
fn a_kept_connection_serves_many_requests() {
    let agent = Agent::start();
    let request = agent.authorized("GET", "/whoami").without("Connection");
    let mut connection = request.begin();
    for _ in 0..100 {
        assert_eq!(connection.one_answer().status, 200);
        connection.more(&request.head()).unwrap();
    }
    assert_eq!(connection.one_answer().status, 200);
}

#[test]
fn whoami_tells_account_and_limits() {
    let agent = Agent::with(&["--exec-slots", "3", "--exec-queue", "5", "--exec-timeout-cap", "77"]);
    let answer = agent.authorized("GET", "/whoami").send();
    assert_eq!(answer.status, 200);
    answer.is_stamped();
    let whoami = &answer.json;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(whoami["elevated"], is_root);
    assert!(!whoami["user"].as_str().unwrap().is_empty());
    assert!(!is_root || whoami["user"] == "root");
    assert!(whoami["session_id"].is_u64() && whoami["interactive"].is_boolean());
    assert_eq!(whoami["agent_id"], agent.http("GET", "/health").send().json["agent_id"]);
    assert!(whoami["features"].as_array().unwrap().contains(&json!("health.proof")));
    let limits = &whoami["limits"];
    assert_eq!((&limits["exec_slots"], &limits["exec_queue"]), (&json!(3), &json!(5)));
    assert_eq!((&limits["exec_queue_wait_sec"], &limits["exec_timeout_cap_sec"]), (&json!(30), &json!(77)));
    assert_eq!(limits["max_json_body"], 8 << 20);
    assert!(limits["max_output_bytes"].as_u64().unwrap() >= 8 << 20);
}
