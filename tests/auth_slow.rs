//! Wrong tokens are answered more and more slowly; the right one, `/health` and the slots never wait for it.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use podlink::token::Token;
use serde_json::json;

use crate::support::{Agent, Answer, events::Events, wait_for};

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
fn failures_are_counted_and_told_once_and_before_they_wait() {
    let agent = Agent::with(&["--auth-delay", "30000", "--auth-delay-cap", "30000", "--drain", "0"]);
    let mut events = Events::open(&agent, "?types=auth.*,log", &[]);
    let tokens: Vec<String> = (0..6).map(|_| wrong()).collect();
    let mut waiting = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let request = agent.http("GET", "/whoami").bearer(token);
        if index < 4 {
            assert_eq!(request.send().status, 401);
        } else {
            waiting.push(request.begin());
        }
    }
    let count = || agent.get("/system/metrics").json["agent"]["auth_failures"].as_u64().unwrap();
    wait_for("the count", PATIENCE, || count() == 6);
    // those whose answers wait are among them
    let mut told = 0;
    while told < 6 {
        let event = events.next();
        assert_eq!((event.name.as_str(), &event.data["path"]), ("auth.failed", &json!("/whoami")), "{event:?}");
        told += event.data["count"].as_u64().unwrap();
    }
    assert_eq!(told, 6);
    agent.stop();
    assert!(events.rest().is_empty(), "no line of the log tells of them a second time");
    for pending in waiting {
        assert_eq!(pending.answer().status, 401);
    }
    assert!(tokens.iter().all(|token| !agent.log().contains(token)));
}
