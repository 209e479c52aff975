//! `/system/time`, `pod time-sync` and the clock in `pod doctor`. The clock of this machine is never set: agents that are
//! asked to may not, and what a step does is shown in the guest of `vm.rs` and by agents that are made up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use podlink::{
    host::{
        AgentClient, ClientSettings, ErrorKind,
        time_sync::{self, SyncSettings, TimeKeeper},
    },
    protocol::GuestTime,
    token::Token,
};
use serde_json::json;

use crate::support::{
    Agent, Cli, LocalPod,
    fake::{Fake, Reply, http, proved},
};

fn now_ns() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_clocks_are_told() {
    let agent = Agent::start();
    let before = now_ns();
    let answer = agent.get("/system/time");
    let after = now_ns();
    assert_eq!(answer.status, 200);
    let time: GuestTime = serde_json::from_value(answer.json).unwrap();
    assert!((before..=after).contains(&time.unix_ns), "{before} {time:?} {after}");
    let again: GuestTime = serde_json::from_value(agent.get("/system/time").json).unwrap();
    assert!(again.monotonic_ns > time.monotonic_ns && again.boot_ns > time.boot_ns);
    assert!(time.boot_ns >= time.monotonic_ns);
}

#[test]
fn an_agent_that_may_not_set_the_clock_says_so() {
    let agent = Agent::without_the_clock();
    assert_eq!(agent.get("/system/time").json["may_set"], false);
    for body in
        [json!({"offset_ns": 0}), json!({"unix_ns": now_ns()}), json!({"time": jiff::Timestamp::now().to_string()})]
    {
        let answer = agent.post("/system/time", &body);
        assert_eq!((answer.status, &answer.json["error"]), (403, &json!("not_permitted")), "{answer:?}");
        assert!(answer.json["hint"].as_str().unwrap().contains("CAP_SYS_TIME"), "{answer:?}");
    }
    for body in [
        json!({}),
        json!({"unix_ns": 1, "offset_ns": 1}),
        json!({"time": "yesterday"}),
        json!({"time": "2026-11-29T14:00:00"}),
        json!({"unix_ns": 0}),
        json!({"unix_ns": -1}),
        json!({"offset_ns": i64::MIN}),
        json!({"offset_ns": 9.2e18}),
        json!({"time": "2300-01-01T00:00:00Z"}),
        json!([1]),
    ] {
        let answer = agent.post("/system/time", &body);
        assert_eq!((answer.status, &answer.json["error"]), (400, &json!("bad_request")), "{body} {answer:?}");
    }
    assert_eq!(agent.call("PUT", "/system/time", &[], b"{}").answer().status, 405);
    assert_eq!(agent.http("POST", "/system/time").send().status, 401);
}

/// An agent whose clock is off and can be stepped, or may not be.
struct OffAgent {
    fake: Fake,
    token: Token,
    offset: Arc<AtomicI64>,
    steps: Arc<AtomicUsize>,
}

impl OffAgent {
    fn new(offset: Duration, behind: bool, may_set: bool) -> Self {
        let ns = i64::try_from(offset.as_nanos()).unwrap() * if behind { -1 } else { 1 };
        let (token, offset, steps) =
            (Token::generate().unwrap(), Arc::new(AtomicI64::new(ns)), Arc::new(AtomicUsize::new(0)));
        let (secret, held, stepped) = (token.clone(), Arc::clone(&offset), Arc::clone(&steps));
        let fake = Fake::start(move |request, _| {
            Reply::Bytes(match (request.method.as_str(), request.path.as_str()) {
                ("GET", "/health") => proved(request, &secret, "a", "ready"),
                ("GET", "/system/time") => {
                    let body = json!({"unix_ns": now_ns() + held.load(Ordering::SeqCst), "utc": "", "monotonic_ns": 1,
                                      "boot_ns": 1, "timezone": {}, "may_set": may_set});
                    http(200, "", &body.to_string())
                }
                ("POST", "/system/time") if may_set => {
                    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
                    let step = body["offset_ns"].as_i64().unwrap();
                    stepped.fetch_add(1, Ordering::SeqCst);
                    let before = held.fetch_add(step, Ordering::SeqCst);
                    let body = json!({"before_unix_ns": before, "after_unix_ns": before + step, "step_ns": step});
                    http(200, "", &body.to_string())
                }
                ("POST", "/system/time") => {
                    http(403, "", r#"{"error":"not_permitted","detail":"the agent's account may not set the clock"}"#)
                }
                _ => http(404, "", r#"{"error":"not_found"}"#),
            })
        });
        Self { fake, token, offset, steps }
    }

    fn client(&self) -> AgentClient {
        AgentClient::new(self.fake.address(), self.token.clone(), ClientSettings::DEFAULT).unwrap()
    }
}

#[test]
fn a_clock_two_hours_off_is_mended_to_within_a_tenth_of_a_second() {
    for behind in [true, false] {
        let agent = OffAgent::new(Duration::from_hours(2), behind, true);
        let report = block_on(time_sync::sync(&agent.client(), &SyncSettings::DEFAULT)).unwrap();
        let left = agent.offset.load(Ordering::SeqCst);
        assert!(left.abs() < 100_000_000, "{left} {report:?}");
        assert!((report.offset_ms.abs() - 7_200_000.0).abs() <= report.error_ms + 1.0, "{report:?}");
        assert!(report.in_tolerance && report.stepped_ms.is_some(), "{report:?}");
        assert_eq!(agent.steps.load(Ordering::SeqCst), 1);
        let again = block_on(time_sync::sync(&agent.client(), &SyncSettings::DEFAULT)).unwrap();
        assert_eq!((again.stepped_ms, agent.steps.load(Ordering::SeqCst)), (None, 1));
    }
}

#[test]
fn a_look_steps_nothing_and_an_agent_that_may_not_is_an_error() {
    let agent = OffAgent::new(Duration::from_hours(2), true, true);
    let look = SyncSettings { step: false, ..SyncSettings::DEFAULT };
    let report = block_on(time_sync::sync(&agent.client(), &look)).unwrap();
    assert!(!report.in_tolerance && report.stepped_ms.is_none() && agent.steps.load(Ordering::SeqCst) == 0);
    let agent = OffAgent::new(Duration::from_hours(2), true, false);
    let error = block_on(time_sync::sync(&agent.client(), &SyncSettings::DEFAULT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("may not set the clock"), "{error}");
}

#[test]
fn an_agent_that_is_silent_costs_the_deadline_and_no_more() {
    let token = Token::generate().unwrap();
    let secret = token.clone();
    let fake = Fake::start(move |request, _| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &secret, "a", "ready")),
        _ => Reply::Silence,
    });
    let client = AgentClient::new(fake.address(), token, ClientSettings::DEFAULT).unwrap();
    let settings = SyncSettings { deadline: Duration::from_millis(300), ..SyncSettings::DEFAULT };
    let begun = std::time::Instant::now();
    let error = block_on(time_sync::sync(&client, &settings)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Silent);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_keeper_tells_how_the_clock_drifts() {
    let agent = OffAgent::new(Duration::ZERO, false, true);
    let settings = SyncSettings { tolerance: Duration::from_hours(1), ..SyncSettings::DEFAULT };
    let mut keeper = TimeKeeper::new(agent.client(), settings);
    block_on(async {
        assert_eq!(keeper.look().await.unwrap().drift_ppm, None);
        agent.offset.fetch_add(10_000_000_000, Ordering::SeqCst);
        let drift = keeper.look().await.unwrap().drift_ppm.unwrap();
        assert!(drift > 0.0, "{drift}");
        agent.offset.fetch_sub(20_000_000_000, Ordering::SeqCst);
        assert!(keeper.look().await.unwrap().drift_ppm.unwrap() < 0.0);
    });
}

#[test]
fn a_local_pod_has_this_hosts_clock() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["time-sync"]).run().exits(0);
    assert!(run.stdout.contains("is left as it is"), "{}", run.stdout);
    let json = pod.pod(&["time-sync", "--check", "--json"]).run().exits(0).json();
    assert_eq!((&json["stepped_ms"], &json["in_tolerance"]), (&json!(null), &json!(true)), "{json}");
    assert!(json["offset_ms"].as_f64().unwrap().abs() <= json["error_ms"].as_f64().unwrap(), "{json}");
    let run = pod.pod(&["doctor"]).run().exits(0);
    assert!(run.stdout.lines().any(|line| line.contains("clock") && line.contains("within 2 s")), "{}", run.stdout);
    let run = pod.pod(&["time-sync", "--tolerance", "0"]).run();
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    drop(Cli::new(["pod", "time-sync", "--pod", "nobody"]).home(pod.home()).run().exits(125));
}
