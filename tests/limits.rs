//! Bodies, heads and paces beyond the limits; connections beyond them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Agent, http::Pending, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;

/// Asserts that the other side ends the connection, and says nothing before it does.
#[track_caller]
fn ends_in_silence(connection: Pending) {
    let said = connection.rest();
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_body_that_is_not_json_by_its_type_is_415() {
    let agent = Agent::start();
    let call = agent.authorized("POST", "/exec");
    let body = json!({"argv": ["true"]}).to_string();
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""] {
        let answer = call.clone().header("Content-Type", wrong).body(body.clone()).send();
        answer.is_error(415, "unsupported_media_type");
    }
    let two = call.clone().header("Content-Type", "application/json").header("Content-Type", "text/plain");
    two.body(body.clone()).send().is_error(415, "unsupported_media_type");
    for right in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(call.clone().header("Content-Type", right).body(body.clone()).send().status, 200, "{right}");
    }
    assert_eq!(call.body(body).send().status, 200, "no type is JSON");
}

#[test]
fn a_body_beyond_8_mib_is_413_and_the_caller_sees_it() {
    let agent = Agent::start();
    let call = agent.authorized("POST", "/exec").header("Content-Type", "application/json");
    // sent whole before the answer is looked at; the second is more than any buffer on the way holds
    for size in [9 * MIB, 40 * MIB] {
        let answer = call.clone().body(vec![b' '; size]).send();
        answer.is_error(413, "too_large");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    // refused by its length, with nothing of it sent
    call.clone().header("Content-Length", "9437184").begin().answer().is_error(413, "too_large");
    let expecting = call.clone().header("Expect", "100-continue").header("Content-Length", "9437184");
    expecting.begin().answer().is_error(413, "too_large");
    // without a length it is counted
    let mut chunked = call.clone().header("Transfer-Encoding", "chunked").begin();
    let chunk = [b"100000\r\n".to_vec(), vec![b' '; MIB], b"\r\n".to_vec()].concat();
    for _ in 0..9 {
        chunked.more(&chunk).unwrap();
    }
    chunked.answer().is_error(413, "too_large");
    // exactly 8 MiB is read, and found to be blank
    call.body(vec![b' '; 8 * MIB]).send().is_error(400, "bad_request");
}

#[test]
fn an_early_answer_reaches_a_caller_that_still_sends() {
    let agent = Agent::start();
    let body = vec![b' '; 9 * MIB];
    agent.http("POST", "/exec").body(body.clone()).send().is_error(401, "unauthorized");
    agent
        .http("POST", "/exec")
        .replace("Host", "evil.example")
        .body(body.clone())
        .send()
        .is_error(403, "forbidden_host");
    agent.authorized("POST", "/nothing").body(body.clone()).send().is_error(404, "not_found");
    let text = agent.authorized("POST", "/exec").header("Content-Type", "text/plain");
    text.body(body).send().is_error(415, "unsupported_media_type");
}

#[test]
fn half_a_head_ends_in_time_and_disturbs_nobody() {
    let agent = Agent::with(&["--header-deadline", "1000"]);
    let begun = Instant::now();
    let mut silent = vec![];
    for half in ["", "GET", "POST /exec HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"] {
        silent.extend((0..20).map(|_| agent.raw(half.as_bytes())));
    }
    for _ in 0..50 {
        assert_eq!(agent.http("GET", "/health").send().status, 200);
    }
    silent.into_iter().for_each(ends_in_silence);
    let took = begun.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&took), "took {took:?}");
}

#[test]
fn a_head_that_drips_ends_in_time() {
    let agent = Agent::with(&["--header-deadline", "1000"]);
    let begun = Instant::now();
    let mut drip = agent.raw(b"GET /health HTTP/1.1\r\n");
    wait_for("the end of the connection", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(50));
        drip.more(b"a").is_err()
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
}

#[test]
fn half_a_head_ends_in_ten_seconds_where_nothing_else_is_said() {
    let agent = Agent::start();
    let begun = Instant::now();
    let silent = agent.raw(b"GET /health HTTP/1.1\r\nHost:");
    ends_in_silence(silent);
    let took = begun.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(13)).contains(&took), "took {took:?}");
    assert_eq!(agent.http("GET", "/health").send().status, 200);
}

#[test]
fn a_body_that_stalls_or_drips_is_408() {
    let agent = Agent::with(&["--body-stall", "500", "--body-deadline", "2000"]);
    let call = agent.authorized("POST", "/exec").header("Content-Length", "1000");
    let mut stalled = call.begin();
    stalled.more(b"{").unwrap();
    let begun = Instant::now();
    let answer = stalled.answer();
    answer.is_error(408, "timeout");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(begun.elapsed() < Duration::from_millis(1900), "took {:?}", begun.elapsed());

    let mut drip = call.begin();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        // in the end the other side is closed
        drop(drip.more(b" "));
        std::thread::sleep(Duration::from_millis(100));
    }
    drip.answer().is_error(408, "timeout");
}

#[test]
fn a_caller_that_takes_nothing_of_its_answer_is_given_up() {
    let agent = Agent::with(&["--write-stall", "500"]);
    let argv = ["sh", "-c", "head -c 7000000 /dev/zero | tr '\\0' x"];
    let call = agent.begin_post("/exec", &json!({"argv": argv, "max_output_bytes": 8 << 20}), &[]);
    wait_for("the connection", PATIENCE, || agent.connections() == 1);
    wait_for("the agent to give up", PATIENCE, || agent.connections() == 0);
    let taken = call.rest();
    assert!(taken.len() < 7_000_000, "{} bytes were taken", taken.len());
}

#[test]
fn what_is_not_http_is_refused_in_the_protocols_form() {
    let agent = Agent::start();
    let long = format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "x".repeat(300_000));
    let many = format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", "X: y\r\n".repeat(500));
    let far = format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "x".repeat(300_000));
    for broken in [
        "hello\r\n\r\n",
        "GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHo st: 127.0.0.1\r\n\r\n",
        "GET /he alth HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /exec HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        "POST /exec HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        &long,
        &many,
        &far,
    ] {
        let answer = agent.raw(broken.as_bytes()).answer();
        answer.is_error(400, "bad_request");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    // also on a connection that was good until then
    let mut kept = agent.http("GET", "/health").without("Connection").begin();
    assert_eq!(kept.one_answer().status, 200);
    kept.more(b"nonsense\r\n\r\n").unwrap();
    kept.answer().is_error(400, "bad_request");
    assert_eq!(agent.http("GET", "/health").send().status, 200);
}

#[test]
fn a_program_that_prints_http_is_not_taken_for_a_refusal() {
    let agent = Agent::start();
    let text = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let call = agent.authorized("POST", "/exec").json(&json!({"argv": ["printf", "%s", text]}));
    let answer = call.send();
    assert_eq!((answer.status, answer.json["stdout"].as_str()), (200, Some(text)));
}

#[test]
fn beyond_the_connections_health_is_answered_and_nothing_else() {
    let agent = Agent::with(&["--max-connections", "5", "--header-deadline", "60000"]);
    // each shows that it has a place; one can still be held by a connection that has just ended
    let mut held: Vec<Pending> = Vec::new();
    wait_for("all places to be taken", PATIENCE, || {
        let mut connection = agent.authorized("GET", "/whoami").without("Connection").begin();
        if connection.one_answer().status == 200 {
            held.push(connection);
        }
        held.len() == 5
    });
    for _ in 0..20 {
        assert_eq!(agent.http("GET", "/health").send().status, 200);
    }
    let refused = agent.authorized("GET", "/whoami").send();
    refused.is_error(429, "queue_full");
    assert_eq!(refused.header("retry-after"), Some("1"));
    agent.http("GET", "/whoami").send().is_error(401, "unauthorized");
    // a silent one does not keep its place there
    let begun = Instant::now();
    ends_in_silence(agent.raw(b"GET"));
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());

    held.pop().unwrap().hang_up(false);
    wait_for("a free place", PATIENCE, || agent.authorized("GET", "/whoami").send().status == 200);
}

#[test]
fn running_out_of_files_ends_nothing() {
    let agent = Agent::with(&["--max-connections", "4096"]);
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.pid()).unwrap());
    let few = Some(u64::try_from(agent.open_files()).unwrap() + 10);
    let limit = rustix::process::Rlimit { current: few, maximum: few };
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
    let held: Vec<Pending> = (0..20).map(|_| agent.raw(b"GET")).collect();
    wait_for("the log to say so", PATIENCE, || agent.log().contains("cannot accept connections"));
    assert!(agent.lives());
    for connection in held {
        connection.hang_up(false);
    }
    wait_for("the log to say that it is over", PATIENCE, || agent.log().contains("accepting connections again"));
    assert_eq!(agent.http("GET", "/health").send().status, 200);
}
