//! Wrong tokens are answered more and more slowly; the right one, `/health` and the slots never wait for it.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use podlink::token::Token;
use serde_json::json;

use crate::support::{Agent, Answer, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

fn wrong() -> String {
    Token::generate().unwrap().expose().to_string()
}

#[test]
fn wrong_tokens_wait_longer_each_time_and_nobody_else_does() {
    let agent = Agent::with(&["--auth-delay", "300", "--auth-delay-cap", "1500", "--exec-slots", "1"]);
    let guess = || {
        let begun = Instant::now();
        let answer = agent.http("GET", "/whoami").bearer(&wrong()).send();
        answer.is_error(401, "unauthorized");
        begun.elapsed()
    };
    for _ in 0..4 {
        guess();
    }
    // the fifth and on: 300, 600, 1200, and then no more than 1500
    for least in [300, 600, 1200, 1500, 1500] {
        let took = guess();
        assert!(took >= Duration::from_millis(least), "{took:?} of {least}");
    }
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            agent.raw(&crate::support::http::request(
                "GET",
                "/exec",
                &[("authorization", &format!("Bearer {}", wrong()))],
                b"",
            ))
        })
        .collect();
    let begun = Instant::now();
    // from that very peer, and with the only slot
    assert_eq!(agent.get("/whoami").status, 200);
    assert_eq!(agent.post("/exec", &json!({"argv": ["true"], "timeout_sec": 20})).json["rc"], 0);
    assert_eq!(agent.http("GET", "/health").bearer(&wrong()).send().status, 200);
    // who sends no token at all guesses nothing
    agent.http("GET", "/whoami").send().is_error(401, "unauthorized");
    assert!(begun.elapsed() < Duration::from_millis(1500), "nobody waited for those who wait: {:?}", begun.elapsed());
    for pending in waiting {
        assert_eq!(pending.answer().status, 401);
    }
    assert!(begun.elapsed() >= Duration::from_millis(1400), "they did wait");
}

#[test]
fn so_many_wait_and_those_beyond_lose_their_connection() {
    let agent =
        Agent::with(&["--auth-delay", "20000", "--auth-delay-cap", "20000", "--auth-delayed", "2", "--drain", "0"]);
    for _ in 0..4 {
        assert_eq!(agent.http("GET", "/whoami").bearer(&wrong()).send().status, 401);
    }
    let token = format!("Bearer {}", wrong());
    let request = format!("GET /whoami HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n");
    let mut waiting = Vec::new();
    let mut answer = Vec::new();
    // once both places are taken, the next is told at once, though it did not ask for its connection to be closed
    wait_for("an answer at once", PATIENCE, || {
        let mut pending = agent.raw(request.as_bytes());
        pending.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut chunk = [0; 4096];
        match pending.0.read(&mut chunk) {
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(_) => waiting.push(pending),
        }
        !answer.is_empty()
    });
    let answer = Answer::parse(&answer);
    assert_eq!((answer.status, answer.header("connection")), (401, Some("close")));
    assert_eq!(waiting.len(), 2);
    // an agent that ends waits for none of them
    let begun = Instant::now();
    agent.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(waiting);
}

#[test]
fn failures_are_reported_once_a_second_with_their_number() {
    let agent = Agent::with(&["--auth-delay", "0", "--log-format", "json"]);
    let tokens: Vec<String> = (0..30).map(|_| wrong()).collect();
    let begun = Instant::now();
    for token in &tokens {
        assert_eq!(agent.http("GET", "/whoami").bearer(token).send().status, 401);
    }
    let reports = || -> Vec<(String, u64)> {
        let log = agent.log();
        let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let failed = lines.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("auth.failed")));
        failed.map(|line| (line["peer"].as_str().unwrap().to_owned(), line["count"].as_u64().unwrap())).collect()
    };
    wait_for("the last report", PATIENCE, || reports().last().is_some_and(|(_, count)| *count == 30));
    let seconds = begun.elapsed().as_secs();
    let reports = reports();
    assert!(reports.len() as u64 <= seconds + 1, "{reports:?} in {seconds} s");
    assert_eq!(reports[0], ("127.0.0.1".to_owned(), 1));
    assert!(tokens.iter().all(|token| !agent.log().contains(token)));
}
