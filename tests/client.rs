//! The client against peers that break, lie or squat: fakes, since the real agent does none of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use podlink::{
    host::{AgentClient, ErrorKind, Seen},
    protocol::{ExecRequest, TimeoutSec},
    token::Token,
};

use crate::support::{
    Port,
    fake::{Fake, Reply, Request, client, health, http, proved, settings, whoami},
};

fn script(timeout: f64) -> ExecRequest {
    ExecRequest {
        script: Some("OjsK".into()),
        timeout_sec: Some(TimeoutSec::Seconds(timeout)),
        ..ExecRequest::default()
    }
}

const RESULT: &str = r#"{"rc":7,"stdout":"ok\n","stderr":""}"#;

/// An agent that behaves but for what `exec` does.
fn agent(token: &Token, exec: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Fake {
    let token = token.clone();
    Fake::start(move |request, connection| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &token, "agent-1", "ready")),
        "/whoami" => Reply::Bytes(whoami()),
        _ => exec(request, connection),
    })
}

#[tokio::test]
async fn a_proved_connection_is_used_again() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| Reply::Bytes(http(200, "", RESULT)));
    let client = client(&fake, &token);
    for _ in 0..3 {
        let outcome = client.exec(&script(1.0)).await.unwrap();
        assert_eq!((outcome.result.rc, outcome.stdout.as_slice()), (7, b"ok\n".as_slice()));
    }
    client.whoami().await.unwrap();
    assert_eq!(fake.connections(), 1);
    assert_eq!(fake.requests_for("GET", "/health").len(), 1, "one proof a connection");
    let ids: std::collections::HashSet<_> = fake
        .requests_for("POST", "/exec")
        .iter()
        .map(|request| request.header("x-request-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3, "each call has an id of its own");
}

#[tokio::test]
async fn a_squatter_never_sees_the_token() {
    let token = Token::generate().unwrap();
    let other = Token::generate().unwrap();
    let made_up = format!("Podlink-Proof: {}\r\n", "ab".repeat(32));
    let body = health("squatter", "ready");
    let pipelined = [http(200, &made_up, &body), http(200, "", RESULT)].concat();
    let shapes: Vec<(&str, Vec<u8>, ErrorKind)> = vec![
        ("text", http(200, "", "hello"), ErrorKind::ForeignProgram),
        ("a web page", http(200, "Content-Type: text/html\r\n", "<html>"), ErrorKind::ForeignProgram),
        ("ok", http(200, "", r#"{"ok":true}"#), ErrorKind::ForeignProgram),
        ("winpodx-like", http(200, "", r#"{"ok":true,"version":"0.2.3"}"#), ErrorKind::ForeignProgram),
        ("a copied health", http(200, "", &body), ErrorKind::ForeignProgram),
        ("a made-up proof", http(200, &made_up, &body), ErrorKind::TokenMismatch),
        ("an answer too many", pipelined, ErrorKind::TokenMismatch),
        ("a copied waiting_for_token", http(503, "", &health("s", "waiting_for_token")), ErrorKind::NotReady),
        ("a redirect", http(307, "Location: /health2\r\n", ""), ErrorKind::ForeignProgram),
        ("not HTTP", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), ErrorKind::ForeignProgram),
        ("endless", http(200, "", &"x".repeat(200_000)), ErrorKind::ForeignProgram),
    ];
    for (what, answer, kind) in shapes {
        let fake = Fake::start(move |_, _| Reply::Bytes(answer.clone()));
        let client = client(&fake, &token);
        let error = client.exec(&script(1.0)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert_eq!(client.whoami().await.unwrap_err().kind(), kind, "{what}");
        client.health().await.unwrap();
        fake.never_saw(&token);
    }
    // the proof of a holder of another token
    let fake = Fake::start(move |request, _| Reply::Bytes(proved(request, &other, "a", "ready")));
    let error = client(&fake, &token).exec(&script(1.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenMismatch);
    assert!(error.hint().unwrap().contains("token file"), "the fix is named: {:?}", error.hint());
    fake.never_saw(&token);
}

#[tokio::test]
async fn a_squatter_that_has_a_real_proof_relayed_and_closes_gets_nothing() {
    let token = Token::generate().unwrap();
    let holder = token.clone();
    let fake = Fake::start(move |request, _| Reply::Last(proved(request, &holder, "a", "ready")));
    let error = client(&fake, &token).exec(&script(1.0)).await.unwrap_err();
    // it may be met as closed before or after the call was put on the connection; the bytes are never read there
    assert!(matches!(error.kind(), ErrorKind::Reset | ErrorKind::AgentLost), "{error}");

    let holder = token.clone();
    let fake = Fake::start(move |request, _| {
        let answer = String::from_utf8(proved(request, &holder, "a", "ready")).unwrap();
        Reply::Last(answer.replacen("\r\n", "\r\nConnection: close\r\n", 1).into_bytes())
    });
    assert_eq!(client(&fake, &token).exec(&script(1.0)).await.unwrap_err().kind(), ErrorKind::Reset);
    fake.never_saw(&token);

    // more bytes behind a right proof would be taken for the answer of the first call
    let holder = token.clone();
    let fake = Fake::start(move |request, _| {
        Reply::Bytes([proved(request, &holder, "a", "ready"), http(200, "", RESULT)].concat())
    });
    let error = client(&fake, &token).exec(&script(1.0)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Reset | ErrorKind::ForeignProgram), "{error}");
    fake.never_saw(&token);

    let holder = token.clone();
    let fake = Fake::start(move |request, connection| match connection {
        0 => Reply::Last(proved(request, &holder, "a", "ready")),
        _ => Reply::Bytes(http(200, "", &health("a", "ready"))),
    });
    let client = client(&fake, &token);
    drop(client.whoami().await.unwrap_err());
    drop(client.whoami().await.unwrap_err());
    fake.never_saw(&token);
}

#[tokio::test]
async fn each_condition_has_its_own_kind() {
    let token = Token::generate().unwrap();
    let port = Port::reserve();
    let nobody = AgentClient::new(([127, 0, 0, 1], port.number()).into(), token.clone(), settings()).unwrap();
    assert_eq!(nobody.exec(&script(1.0)).await.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(nobody.health().await.unwrap(), Seen::Refused);

    let closing = Fake::start(|_, _| Reply::Close);
    assert_eq!(client(&closing, &token).exec(&script(1.0)).await.unwrap_err().kind(), ErrorKind::Reset);
    assert_eq!(client(&closing, &token).health().await.unwrap(), Seen::Reset);

    // as a stopped process: the kernel takes connections, nobody answers
    let silent = Fake::start(|_, _| Reply::Silence);
    let begun = Instant::now();
    assert_eq!(client(&silent, &token).exec(&script(60.0)).await.unwrap_err().kind(), ErrorKind::Silent);
    assert_eq!(client(&silent, &token).health().await.unwrap(), Seen::Silent);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    silent.never_saw(&token);

    for (status, body, kind) in [
        (401, r#"{"error":"unauthorized"}"#, ErrorKind::TokenMismatch),
        (503, r#"{"error":"not_ready","stage":"installing","waiting_for":["X"]}"#, ErrorKind::NotReady),
        (503, r#"{"error":"not_ready","stage":"install_failed"}"#, ErrorKind::InstallFailed),
        (429, r#"{"error":"queue_full"}"#, ErrorKind::Busy),
        (503, r#"{"error":"agent_stopping","started":true,"stdout":"half"}"#, ErrorKind::AgentStopping),
        (422, r#"{"error":"spawn_failed","detail":"no such file"}"#, ErrorKind::SpawnFailed),
        (400, r#"{"error":"bad_request","detail":"cap is 3600"}"#, ErrorKind::Rejected),
        (500, r#"{"error":"invented_later"}"#, ErrorKind::Rejected),
        (502, "<html>", ErrorKind::ForeignProgram),
        (200, "<html>", ErrorKind::ForeignProgram),
    ] {
        let fake = agent(&token, move |_, _| Reply::Bytes(http(status, "", body)));
        let error = client(&fake, &token).exec(&script(1.0)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {body}: {error}");
        assert_eq!(fake.requests_for("POST", "/exec").len(), 1, "an answer is never asked for twice");
    }
}

#[tokio::test]
async fn a_broken_call_is_joined_with_its_id_and_its_agent() {
    let token = Token::generate().unwrap();
    let calls = AtomicUsize::new(0);
    let fake = agent(&token, move |_, _| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Close,
        // the head of an answer, and then the line breaks
        1 => Reply::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"rc\"".to_vec()),
        _ => Reply::Bytes(http(200, "", RESULT)),
    });
    assert_eq!(client(&fake, &token).exec(&script(5.0)).await.unwrap().result.rc, 7);
    let posts = fake.requests_for("POST", "/exec");
    assert_eq!(posts.len(), 3);
    assert!(posts.iter().all(|post| post.header("x-request-id") == posts[0].header("x-request-id")));
    assert!(posts.iter().all(|post| post.body == posts[0].body));
    assert!(posts[1..].iter().all(|post| post.header("podlink-if-agent") == Some("agent-1")));
}

#[tokio::test]
async fn an_agent_that_is_gone_is_told_at_once() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| Reply::Die);
    let begun = Instant::now();
    let error = client(&fake, &token).exec(&script(60.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentLost, "{error}");
    assert!(error.to_string().contains("whether the script finished is not known"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(fake.requests_for("POST", "/exec").len(), 1);
}

#[tokio::test]
async fn an_agent_that_restarted_runs_nothing_again() {
    let token = Token::generate().unwrap();
    let calls = AtomicUsize::new(0);
    let conflict = http(409, "", r#"{"error":"conflict","detail":"another agent"}"#);
    let fake = agent(&token, move |_, _| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Close,
        _ => Reply::Bytes(conflict.clone()),
    });
    let error = client(&fake, &token).exec(&script(5.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentLost);
    assert!(error.to_string().contains("restarted"), "{error}");
}

/// N-03: an agent that is replaced between two calls of one client runs the second one, and runs it once.
#[tokio::test]
async fn a_restart_between_two_calls_is_no_failure() {
    let token = Token::generate().unwrap();
    let (holder, ran) = (token.clone(), Arc::new(AtomicUsize::new(0)));
    let counter = ran.clone();
    let fake = Fake::start(move |request, connection| {
        let me = format!("agent-{connection}"); // each connection meets a new agent
        match request.path.as_str() {
            "/health" => Reply::Bytes(proved(request, &holder, &me, "ready")),
            _ if request.header("podlink-if-agent").is_some_and(|agent| agent != me) => {
                Reply::Bytes(http(409, "", r#"{"error":"conflict"}"#))
            }
            _ => {
                counter.fetch_add(1, Ordering::SeqCst);
                Reply::Last(http(200, "Connection: close\r\n", RESULT))
            }
        }
    });
    let client = client(&fake, &token);
    for _ in 0..3 {
        assert_eq!(client.exec(&script(1.0)).await.unwrap().result.rc, 7);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 3, "each call ran once");
}

/// N-10: the address is one setting, and may be of either family.
#[tokio::test]
async fn an_address_of_the_other_family_is_used_for_all() {
    let token = Token::generate().unwrap();
    let holder = token.clone();
    let fake = Fake::start_at(Port::reserve(), std::net::Ipv6Addr::LOCALHOST.into(), move |request, _| {
        assert!(request.header("host").unwrap().starts_with("[::1]:"));
        match request.path.as_str() {
            "/health" => Reply::Bytes(proved(request, &holder, "a", "ready")),
            "/whoami" => Reply::Bytes(whoami()),
            _ => Reply::Bytes(http(200, "", RESULT)),
        }
    });
    let client = client(&fake, &token);
    assert!(matches!(client.health().await.unwrap(), Seen::Ready(_)));
    client.whoami().await.unwrap();
    assert_eq!(client.exec(&script(1.0)).await.unwrap().result.rc, 7);
}

/// N-07: headers and then silence; one byte now and then.
#[tokio::test]
async fn the_deadline_covers_the_body() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{".to_vec()));
    let begun = Instant::now();
    let error = client(&fake, &token).exec(&script(0.5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentLost, "{error}");
    let took = begun.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

/// E-21: an answer that comes well after the call's own time-out is still the one seen.
#[tokio::test]
async fn the_guests_timeout_is_the_one_seen() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| {
        std::thread::sleep(Duration::from_millis(800)); // the time-out of 0.5 s and what killing takes
        Reply::Bytes(http(200, "", r#"{"rc":124,"stdout":"half","stderr":"","timed_out":true}"#))
    });
    let outcome = client(&fake, &token).exec(&script(0.5)).await.unwrap();
    assert!(outcome.result.timed_out);
    assert_eq!(outcome.stdout, b"half");
}

#[tokio::test]
async fn bytes_come_out_of_base64() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| {
        Reply::Bytes(http(200, "", r#"{"rc":0,"stdout":"\ufffd","stdout_b64":"/wD+","stderr":"ä"}"#))
    });
    let outcome = client(&fake, &token).exec(&script(1.0)).await.unwrap();
    assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_slice()), ([0xff, 0, 0xfe].as_slice(), "ä".as_bytes()));
}

/// N-03: a connection that the agent closed at the moment of reuse.
#[tokio::test]
async fn a_get_is_repeated_on_a_stale_connection() {
    let token = Token::generate().unwrap();
    let (holder, asked) = (token.clone(), AtomicUsize::new(0));
    let fake = Fake::start(move |request, _| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &holder, "a", "ready")),
        _ if asked.fetch_add(1, Ordering::SeqCst) == 1 => Reply::Close,
        _ => Reply::Bytes(whoami()),
    });
    let client = client(&fake, &token);
    client.whoami().await.unwrap();
    client.whoami().await.unwrap();
    assert_eq!(fake.requests_for("GET", "/whoami").len(), 3);
}

#[tokio::test]
async fn no_debug_text_or_error_shows_the_token() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| Reply::Bytes(http(401, "", r#"{"error":"unauthorized"}"#)));
    let client = client(&fake, &token);
    let error = client.exec(&script(1.0)).await.unwrap_err();
    let text = format!("{client:?} {error:?} {error}");
    assert!(!text.contains(token.expose().as_str()));
}
