//! Sessions: calls one after the other, in order of arrival, each of which can be ended by itself.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use podlink::protocol::{MEDIA_EVENTS, MEDIA_MULTIPLEXED};
use serde_json::{Value, json};

use crate::{
    stream::script,
    support::{Agent, Answer, Item, Stream, http::Pending, processes, wait_for},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A call of a session that runs a script.
fn of(session: &str, source: &str) -> Value {
    let mut body = script(source);
    body["session"] = json!(session);
    body
}

/// A session as `GET /sessions` shows it; null where nothing runs or waits in it.
fn look(agent: &Agent, session: &str) -> Value {
    let list = agent.get("/sessions").json;
    let sessions = list["sessions"].as_array().unwrap();
    sessions.iter().find(|info| info["name"] == session).cloned().unwrap_or_default()
}

/// Waits until so many calls of the session wait for their turn, behind one that runs.
#[track_caller]
fn wait_for_queue(agent: &Agent, session: &str, count: usize) -> Value {
    let mut info = Value::Null;
    wait_for("the queue of the session", PATIENCE, || {
        info = look(agent, session);
        info["running"]["state"] == "running" && info["queued"].as_array().map_or(0, Vec::len) == count
    });
    info
}

/// Holds a session until its file is there.
fn plug(agent: &Agent, session: &str, go: &Path) -> Pending {
    let source = format!("until [ -e {} ]; do sleep 0.02; done; echo held", go.display());
    let call = agent.begin_post("/exec", &of(session, &source), &[]);
    wait_for_queue(agent, session, 0);
    call
}

#[test]
fn calls_run_in_the_order_in_which_they_came() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let file = folder.path().join("order");
    let mut calls = vec![plug(&agent, "line", &go)];
    for n in 0..50_usize {
        // one that wrote before the one in front of it has ended would be seen
        let source = format!(
            "mkdir {0}/alone && echo {n} >>{1}; rmdir {0}/alone; echo {n}",
            folder.path().display(),
            file.display()
        );
        let mut body = of("line", &source);
        body["detach"] = json!(n % 4 == 3);
        let form = ["application/json", MEDIA_MULTIPLEXED, MEDIA_EVENTS, "*/*"][n % 4];
        calls.push(agent.begin_stream(form, &body, &[]));
        wait_for_queue(&agent, "line", n + 1);
    }
    // the other sessions, and calls of none, do not wait
    let mut side = of("side_by-side2", "echo side");
    assert_eq!(agent.post("/exec", &side).json["stdout"], "side\n");
    side["queue"] = json!(false);
    assert_eq!(agent.post("/exec", &side).json["stdout"], "side\n");
    assert_eq!(agent.post("/exec", &script("echo none")).json["stdout"], "none\n");
    assert!(!file.exists());
    std::fs::write(&go, "").unwrap();
    let mut calls = calls.into_iter();
    assert_eq!(calls.next().unwrap().answer().json["stdout"], "held\n");
    for (n, call) in calls.enumerate() {
        let said = match n % 4 {
            0 => call.answer().json["stdout"].as_str().unwrap().to_owned(),
            3 => {
                let started = call.answer();
                assert_eq!(started.status, 202);
                let id = started.json["process_id"].as_str().unwrap().to_owned();
                assert_eq!(agent.ended(&id)["session"], "line");
                String::from_utf8(agent.output(&id, "").whole().stdout).unwrap()
            }
            _ => String::from_utf8(Stream::of(call).whole().stdout).unwrap(),
        };
        assert_eq!(said, format!("{n}\n"));
    }
    let written = std::fs::read_to_string(&file).unwrap();
    let wanted: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    assert_eq!(written.lines().collect::<Vec<_>>(), wanted);
    wait_for("the session to be over", PATIENCE, || look(&agent, "line").is_null());
}

#[test]
fn a_session_shows_what_runs_and_what_waits() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let held = plug(&agent, "b", &go);
    let other = plug(&agent, "a", &go);
    let mut calls = Vec::new();
    for n in 0..3 {
        calls.push(agent.begin_post("/exec", &of("b", "true"), &[("x-request-id", &format!("waits-{n}"))]));
        wait_for_queue(&agent, "b", n + 1);
    }
    // a repeat has no place of its own
    let repeat = agent.begin_post("/exec", &of("b", "true"), &[("x-request-id", "waits-1")]);
    wait_for("it to be there", PATIENCE, || agent.connections() >= 6);
    let list = agent.get("/sessions").json;
    let sessions = list["sessions"].as_array().unwrap();
    let names: Vec<&str> = sessions.iter().map(|session| session["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let b = &sessions[1];
    assert_eq!((&b["running"]["state"], &b["running"]["session"]), (&json!("running"), &json!("b")));
    let queued = b["queued"].as_array().unwrap();
    let ids: Vec<&str> = queued.iter().map(|call| call["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["waits-0", "waits-1", "waits-2"]);
    for call in queued {
        assert_eq!((&call["state"], &call["pid"], &call["started_at"]), (&json!("queued"), &Value::Null, &Value::Null));
        assert_eq!(agent.info(call["process_id"].as_str().unwrap()), *call, "the same under its own name");
        // nobody to signal yet
        let path = format!("/processes/{}/signal", call["process_id"].as_str().unwrap());
        agent.post(&path, &json!({ "signal": "TERM" })).is_error(409, "conflict");
    }
    std::fs::write(&go, "").unwrap();
    calls.extend([held, other]);
    assert!(calls.into_iter().all(|call| call.answer().status == 200));
    assert_eq!(repeat.answer().json["rc"], 0);
    assert_eq!(agent.get("/sessions").json, json!({ "sessions": [] }));
}

#[test]
fn a_call_that_is_not_to_wait_is_told_busy() {
    let agent = Agent::with(&["--exec-slots", "2"]);
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let held = plug(&agent, "s", &go);
    let mut body = of("s", "echo now");
    body["queue"] = json!(false);
    for form in ["application/json", MEDIA_MULTIPLEXED, MEDIA_EVENTS] {
        let answer = agent.begin_stream(form, &body, &[]).answer();
        assert!(answer.is_error(409, "busy")["detail"].as_str().unwrap().contains("session"), "{answer:?}");
    }
    let mut job = body.clone();
    job["detach"] = json!(true);
    agent.post("/exec", &job).is_error(409, "busy");
    // with every slot taken, any call would have to wait
    let second = plug(&agent, "t", &go);
    let free = json!({ "argv": ["echo", "now"], "queue": false });
    let answer = agent.post("/exec", &free);
    assert!(answer.is_error(409, "busy")["detail"].as_str().unwrap().contains("slot"), "{answer:?}");
    let other = json!({ "argv": ["echo", "now"], "queue": false, "session": "u" });
    agent.post("/exec", &other).is_error(409, "busy");
    assert!(look(&agent, "u").is_null(), "it has left the session again");
    std::fs::write(&go, "").unwrap();
    assert_eq!((held.answer().status, second.answer().status), (200, 200));
    for body in [body, free, other] {
        assert_eq!(agent.post("/exec", &body).json["stdout"], "now\n");
    }
}

#[test]
fn one_queued_call_is_cancelled_without_the_others() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let held = plug(&agent, "s", &go);
    let calls: Vec<Pending> = (0..4)
        .map(|n| {
            let form = if n == 2 { MEDIA_MULTIPLEXED } else { "*/*" };
            let call = agent.begin_stream(form, &of("s", &format!("echo {n}")), &[]);
            wait_for_queue(&agent, "s", n + 1);
            call
        })
        .collect();
    let queued = look(&agent, "s")["queued"].as_array().unwrap().clone();
    let id = |n: usize| queued[n]["process_id"].as_str().unwrap().to_owned();
    let watched = agent.call("GET", &format!("/processes/{}/output", id(2)), &[("accept", MEDIA_EVENTS)], b"");
    // who does not want to wait is told that there is nothing yet
    let path = format!("/processes/{}/output?follow=false", id(2));
    let none = Stream::of(agent.call("GET", &path, &[("accept", MEDIA_EVENTS)], b"")).whole();
    assert_eq!(none.end, json!({ "running": true, "offset": 0 }));
    for (n, query) in [(2, "?keep=true"), (1, "")] {
        let ended = agent.delete(&format!("/processes/{}{query}", id(n)));
        assert_eq!((ended.status, &ended.json["killed"], &ended.json["survivors"]), (200, &json!(0), &json!([])));
    }
    assert_eq!(Stream::of(watched).whole().end["started"], json!(false));
    assert_eq!(agent.info(&id(2))["error"]["started"], json!(false));
    agent.get(&format!("/processes/{}", id(1))).is_error(404, "not_found");
    let rest = wait_for_queue(&agent, "s", 2)["queued"].as_array().unwrap().clone();
    assert_eq!((&rest[0]["process_id"], &rest[1]["process_id"]), (&json!(id(0)), &json!(id(3))));
    std::fs::write(&go, "").unwrap();
    assert_eq!(held.answer().status, 200);
    for (n, call) in calls.into_iter().enumerate() {
        let answer = call.answer();
        if n == 1 || n == 2 {
            assert_eq!(answer.is_error(409, "cancelled")["started"], json!(false));
        } else {
            assert_eq!((answer.status, &answer.json["stdout"]), (200, &json!(format!("{n}\n"))));
        }
    }
}

#[test]
fn a_running_call_is_cancelled_and_the_next_has_its_turn() {
    let agent = Agent::start();
    let tag = processes::unique_seconds();
    let running = agent.begin_post("/exec", &of("s", &format!("echo so far; sleep {tag}")), &[]);
    let info = wait_for_queue(&agent, "s", 0);
    wait_for("it to have begun", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 1);
    let next = agent.begin_post("/exec", &of("s", "echo next"), &[]);
    wait_for_queue(&agent, "s", 1);
    let ended = agent.delete(&format!("/processes/{}", info["running"]["process_id"].as_str().unwrap()));
    assert_eq!(ended.json["killed"], json!(2), "{ended:?}");
    let answer = running.answer();
    let body = answer.is_error(409, "cancelled");
    assert_eq!((&body["started"], &body["stdout"]), (&json!(true), &json!("so far\n")));
    assert_eq!(next.answer().json["stdout"], "next\n");
}

#[test]
fn a_whole_session_is_ended() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let (tag, go) = (processes::unique_seconds(), folder.path().join("go"));
    let other = plug(&agent, "other", &go);
    let running = agent.begin_stream(MEDIA_EVENTS, &of("s", &format!("echo so far; sleep {tag}")), &[]);
    wait_for_queue(&agent, "s", 0);
    wait_for("it to have begun", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 1);
    let witness = folder.path().join("witness");
    let mut calls = Vec::new();
    for n in 0..20 {
        let mut body = of("s", &format!("echo {n} >>{}", witness.display()));
        body["detach"] = json!(n % 3 == 0);
        calls.push(agent.begin_stream(if n % 3 == 1 { MEDIA_MULTIPLEXED } else { "*/*" }, &body, &[]));
        wait_for_queue(&agent, "s", n + 1);
    }
    let ended = agent.delete("/sessions/s");
    assert_eq!((ended.status, &ended.json["ended"]), (200, &json!(21)));
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
    assert!(look(&agent, "s").is_null());
    let whole = Stream::of(running).whole();
    assert_eq!((&*whole.stdout, &whole.end["error"]), (&b"so far\n"[..], &json!("cancelled")));
    assert_eq!(whole.end["started"], json!(true));
    for call in calls {
        assert_eq!(call.answer().is_error(409, "cancelled")["started"], json!(false));
    }
    assert!(!witness.exists(), "none of them ran");
    agent.delete("/sessions/s").is_error(404, "not_found");
    assert_eq!(look(&agent, "other")["running"]["state"], "running", "another session is not touched");
    std::fs::write(&go, "").unwrap();
    assert_eq!(other.answer().json["stdout"], "held\n");
    assert_eq!(agent.post("/exec", &of("s", "echo again")).json["stdout"], "again\n");
}

#[test]
fn a_caller_that_vanishes_takes_its_call_with_it() {
    let agent = Agent::with(&["--orphan-grace", "2500"]);
    let folder = tempfile::tempdir().unwrap();
    let (go, witness) = (folder.path().join("go"), folder.path().join("witness"));
    let held = plug(&agent, "s", &go);
    let body = |n: usize| of("s", &format!("echo {n} >>{}", witness.display()));
    let last = body(9);
    let mut calls = Vec::new();
    for n in 0..4 {
        let id = format!("leaves-{n}");
        let headers = [("x-request-id", id.as_str())];
        let form = if n % 2 == 0 { "*/*" } else { MEDIA_MULTIPLEXED };
        calls.push(agent.begin_stream(form, &body(n), if n < 2 { &[] } else { &headers }));
        wait_for_queue(&agent, "s", n + 1);
    }
    let last = agent.begin_post("/exec", &last, &[]);
    wait_for_queue(&agent, "s", 5);
    let left = Instant::now();
    for (n, call) in calls.into_iter().enumerate() {
        call.hang_up(n % 2 == 0);
    }
    // those without an id at once, those with one when they have had the time to come back
    wait_for_queue(&agent, "s", 3);
    wait_for_queue(&agent, "s", 1);
    assert!(left.elapsed() > Duration::from_secs(2), "{:?}", left.elapsed());
    std::fs::write(&go, "").unwrap();
    assert_eq!((held.answer().status, last.answer().status), (200, 200));
    assert_eq!(std::fs::read_to_string(&witness).unwrap(), "9\n");

    // one that runs: it is ended, and the next has its turn
    let tag = processes::unique_seconds();
    let mut running = Stream::of(agent.begin_stream(MEDIA_EVENTS, &of("s", &format!("echo x; sleep {tag}")), &[]));
    assert!(matches!(running.next(), Some(Item::Started(_))));
    running.wait_for_stdout("x\n");
    let next = agent.begin_post("/exec", &of("s", "echo next"), &[]);
    wait_for_queue(&agent, "s", 1);
    running.connection.hang_up(false);
    assert_eq!(next.answer().json["stdout"], "next\n");
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
}

#[test]
fn a_job_holds_its_session_until_it_ends() {
    let agent = Agent::with(&["--drain", "0"]);
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let done = folder.path().join("done");
    let source = format!("until [ -e {} ]; do sleep 0.02; done; sleep 0.2; echo job >{}", go.display(), done.display());
    let id = agent.spawn(&of("s", &source));
    let next = agent.begin_post("/exec", &of("s", &format!("cat {}; echo next", done.display())), &[]);
    let info = wait_for_queue(&agent, "s", 1);
    assert_eq!((&info["running"]["process_id"], &info["running"]["mode"]), (&json!(id), &json!("detached")));
    let mut hasty = of("s", "true");
    hasty["queue"] = json!(false);
    agent.post("/exec", &hasty).is_error(409, "busy");
    std::fs::write(&go, "").unwrap();
    assert_eq!(next.answer().json["stdout"], "job\nnext\n");
    assert_eq!(agent.info(&id)["result"]["rc"], json!(0));
}

#[test]
fn waiting_is_bounded_in_time_and_number() {
    let agent = Agent::with(&["--session-wait", "2000", "--exec-queue", "3"]);
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let held = plug(&agent, "s", &go);
    // beside the one that runs there are two places
    let calls: Vec<Pending> = (0..3).map(|_| agent.begin_post("/exec", &of("s", "true"), &[])).collect();
    let answers: Vec<Answer> = calls.into_iter().map(Pending::answer).collect();
    for (reason, count) in [("too many calls wait", 1), ("did not come in time", 2)] {
        let told = |answer: &&Answer| answer.json["detail"].as_str().unwrap().contains(reason);
        assert_eq!(answers.iter().filter(told).count(), count, "{reason}: {answers:?}");
    }
    for answer in answers {
        answer.is_error(429, "queue_full");
        assert!(answer.header("retry-after").is_some());
    }
    std::fs::write(&go, "").unwrap();
    assert_eq!(held.answer().json["stdout"], "held\n", "a call that runs has all its time");
}

#[test]
fn an_agent_that_stops_runs_no_queued_call() {
    let agent = Agent::with(&["--drain", "20"]);
    let folder = tempfile::tempdir().unwrap();
    let (go, witness) = (folder.path().join("go"), folder.path().join("witness"));
    let held = plug(&agent, "s", &go);
    let queued = agent.begin_stream(MEDIA_MULTIPLEXED, &of("s", &format!(": >{}", witness.display())), &[]);
    wait_for_queue(&agent, "s", 1);
    agent.terminate();
    assert_eq!(queued.answer().is_error(503, "agent_stopping")["started"], json!(false));
    std::fs::write(&go, "").unwrap();
    assert_eq!(held.answer().json["stdout"], "held\n");
    assert!(!witness.exists());
    agent.stop();
}

#[test]
fn names_are_checked() {
    let agent = Agent::start();
    let long = "x".repeat(65);
    for name in ["", " ", "a b", "a/b", "é", "a.b", "a\n", long.as_str()] {
        agent.post("/exec", &of(name, "true")).is_error(400, "bad_request");
    }
    for name in ["a%20b", "a.b", "%C3%A9", "%ff", long.as_str()] {
        agent.delete(&format!("/sessions/{name}")).is_error(400, "bad_request");
    }
    agent.delete("/sessions/none").is_error(404, "not_found");
    for name in ["A", "0", "_", "-", &long[1..]] {
        assert_eq!(agent.post("/exec", &of(name, "true")).status, 200, "{name}");
    }
    agent.call("POST", "/sessions", &[], b"").answer().is_error(405, "method_not_allowed");
}
