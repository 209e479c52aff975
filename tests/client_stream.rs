//! Streamed, attached and detached calls against peers that cut, fall silent or send garbage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use podlink::{
    host::{AgentClient, ErrorKind, ExecEvent, ExecStream},
    protocol::{
        AttachRequest, ExecRequest, ExecResult, FrameKind, Gap, MEDIA_MULTIPLEXED, ProcessState, TimeoutSec,
        frame_header,
    },
    token::Token,
};

use crate::support::fake::{Fake, Reply, Request, client, http, proved, settings};

/// A call whose only argument tells the peer what to do.
fn call(what: &str) -> ExecRequest {
    ExecRequest {
        argv: Some(vec![what.to_owned()]),
        timeout_sec: Some(TimeoutSec::Seconds(20.0)),
        ..ExecRequest::default()
    }
}

/// What a call's only argument is.
fn what(request: &Request) -> String {
    let request: ExecRequest = serde_json::from_slice(&request.body).unwrap();
    request.argv.unwrap().remove(0)
}

/// An agent that behaves but for what these paths do.
fn agent(token: &Token, reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Fake {
    let token = token.clone();
    Fake::start(move |request, connection| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &token, "agent-1", "ready")),
        _ => reply(request, connection),
    })
}

fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    [&frame_header(kind, payload.len())[..], payload].concat()
}

const END: &str = r#"{"rc":7,"stdout_bytes":1,"stderr_bytes":2,"process_id":"p-1"}"#;

/// Output of many small frames on both streams, the bytes by which each can be told from its neighbours.
fn output() -> Vec<(FrameKind, Vec<u8>)> {
    (0..30_u8)
        .map(|n| {
            let kind = if n % 3 == 1 { FrameKind::Stderr } else { FrameKind::Stdout };
            (kind, (0..n % 7).map(|m| n * 8 + m).collect())
        })
        .collect()
}

/// The frames of this output from `offset` on, and the end.
fn wire(output: &[(FrameKind, Vec<u8>)], offset: usize) -> Vec<u8> {
    let (mut bytes, mut at) = (Vec::new(), 0);
    for (kind, payload) in output {
        let skip = offset.saturating_sub(at).min(payload.len());
        at += payload.len();
        if skip < payload.len() || (payload.is_empty() && at >= offset) {
            bytes.extend(frame(*kind, &payload[skip..]));
        }
    }
    bytes.extend(frame(FrameKind::End, END.as_bytes()));
    bytes
}

/// The head of a streamed answer.
fn head(process_id: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {MEDIA_MULTIPLEXED}\r\nX-Process-Id: {process_id}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
}

/// A chunk of a body.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A whole streamed answer.
fn streamed(process_id: &str, frames: &[u8]) -> Vec<u8> {
    [head(process_id).as_bytes(), &chunk(frames), b"0\r\n\r\n"].concat()
}

/// The head and these frames, and more to come.
fn begun(process_id: &str, frames: &[u8]) -> Vec<u8> {
    [head(process_id).as_bytes(), &chunk(frames)].concat()
}

/// The value of a query's parameter.
fn query(request: &Request, name: &str) -> Option<u64> {
    let (_, query) = request.path.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// All that a stream hands out.
#[derive(Debug, Default, PartialEq)]
struct All {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Both, in order.
    both: Vec<u8>,
    gaps: Vec<Gap>,
    exit: Option<ExecResult>,
}

async fn all(stream: &mut ExecStream) -> Result<All, podlink::host::Error> {
    let mut all = All::default();
    let first = stream.next().await.unwrap()?;
    assert_eq!(first, ExecEvent::Started { process_id: stream.process_id().to_owned() });
    while let Some(event) = stream.next().await {
        assert!(all.exit.is_none(), "an event after the exit");
        match event? {
            ExecEvent::Started { .. } => panic!("started twice"),
            ExecEvent::Stdout(bytes) => {
                all.stdout.extend_from_slice(&bytes);
                all.both.extend_from_slice(&bytes);
            }
            ExecEvent::Stderr(bytes) => {
                all.stderr.extend_from_slice(&bytes);
                all.both.extend_from_slice(&bytes);
            }
            ExecEvent::Gap(gap) => all.gaps.push(gap),
            ExecEvent::Exit(result) => all.exit = Some(result),
        }
    }
    Ok(all)
}

fn expected() -> All {
    let mut all = All { exit: serde_json::from_str(END).unwrap(), ..All::default() };
    for (kind, payload) in output() {
        all.both.extend_from_slice(&payload);
        if kind == FrameKind::Stdout { &mut all.stdout } else { &mut all.stderr }.extend_from_slice(&payload);
    }
    all
}

#[tokio::test]
async fn a_streamed_call_is_handed_out_as_it_comes_and_its_connection_used_again() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |_, _| Reply::Bytes(streamed("p-1", &wire(&output(), 0))));
    let client = client(&fake, &token);
    for _ in 0..3 {
        let mut stream = client.exec_stream(&call("x")).await.unwrap();
        assert_eq!(stream.process_id(), "p-1");
        assert_eq!(all(&mut stream).await.unwrap(), expected());
        assert_eq!(stream.offset(), expected().both.len() as u64);
        assert!(stream.next().await.is_none());
    }
    assert_eq!(fake.connections(), 1);
    let posts = fake.requests_for("POST", "/exec");
    assert!(posts.iter().all(|post| post.header("accept") == Some(MEDIA_MULTIPLEXED)));
}

/// Every cut of the answer, inside its head too, and each continuation cut once more.
#[tokio::test]
async fn a_connection_cut_between_any_two_bytes_loses_nothing() {
    let token = Token::generate().unwrap();
    let tries = Arc::new(std::sync::Mutex::new(std::collections::HashMap::<String, usize>::new()));
    let counted = tries.clone();
    let fake = agent(&token, move |request, _| {
        let (key, cut, answer) = if request.method == "POST" {
            let cut = what(request).parse::<usize>().unwrap();
            (format!("post {cut}"), cut, streamed(&format!("p-{cut}"), &wire(&output(), 0)))
        } else {
            let id = request.path.split(['/', '?']).nth(2).unwrap();
            let offset = usize::try_from(query(request, "offset").unwrap()).unwrap();
            let cut: usize = id.trim_start_matches("p-").parse().unwrap();
            (format!("get {cut}"), 120 + cut % 90, streamed(id, &wire(&output(), offset)))
        };
        let tries = { *counted.lock().unwrap().entry(key).and_modify(|count| *count += 1).or_insert(1) };
        if tries == 1 { Reply::Last(answer[..cut.min(answer.len())].to_vec()) } else { Reply::Bytes(answer) }
    });
    let client = client(&fake, &token);
    let length = streamed("p-100", &wire(&output(), 0)).len();
    let mut outcomes = stream::iter(0..length)
        .map(|cut| {
            let client = client.clone();
            async move {
                let mut stream = client.exec_stream(&call(&cut.to_string())).await?;
                Ok::<_, podlink::host::Error>((cut, all(&mut stream).await?))
            }
        })
        .buffer_unordered(64);
    let mut count = 0;
    while let Some(outcome) = outcomes.next().await {
        let (cut, all) = outcome.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)));
        assert_eq!(all, expected(), "cut at {cut}");
        count += 1;
    }
    assert_eq!(count, length);
}

#[tokio::test]
async fn a_gap_is_told_and_counted() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |request, _| match query(request, "offset") {
        None => Reply::Last(begun("p-1", &frame(FrameKind::Stdout, b"0123"))),
        Some(offset) => {
            assert_eq!(offset, 4);
            let frames = [
                frame(FrameKind::Gap, br#"{"from":4,"to":10}"#),
                frame(FrameKind::Stderr, b"abc"),
                frame(FrameKind::End, END.as_bytes()),
            ];
            Reply::Bytes(streamed("p-1", &frames.concat()))
        }
    });
    let mut stream = client(&fake, &token).exec_stream(&call("x")).await.unwrap();
    let all = all(&mut stream).await.unwrap();
    assert_eq!((all.both.as_slice(), all.gaps.as_slice()), (&b"0123abc"[..], &[Gap { from: 4, to: 10 }][..]));
    assert_eq!(stream.offset(), 13);
}

#[tokio::test]
async fn a_stream_without_its_end_is_never_a_finished_one() {
    let token = Token::generate().unwrap();
    // a good end of the body, and the agent knows nothing of the call any more
    let fake = agent(&token, |request, _| match request.method.as_str() {
        "POST" => Reply::Bytes(streamed("p-1", &frame(FrameKind::Stdout, b"0123"))),
        _ => Reply::Bytes(http(404, "", r#"{"error":"not_found"}"#)),
    });
    let mut stream = client(&fake, &token).exec_stream(&call("x")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Started { .. }))));
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Stdout(bytes))) if bytes == "0123"));
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentLost, "{error}");
    assert!(stream.next().await.is_none());

    // the agent is gone
    let gone = agent(&token, |_, _| Reply::Die);
    let error = client(&gone, &token).exec_stream(&call("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentLost, "{error}");

    // each connection ends where the last one did: given up after the life of an orphan
    let stuck = agent(&token, |request, _| match request.method.as_str() {
        "POST" => Reply::Last(begun("p-1", &frame(FrameKind::Stdout, b"0123"))),
        _ => Reply::Last(begun("p-1", b"")),
    });
    let mut stream = client(&stuck, &token).exec_stream(&call("x")).await.unwrap();
    let begun = Instant::now();
    assert_eq!(all(&mut stream).await.unwrap_err().kind(), ErrorKind::AgentLost);
    assert!(begun.elapsed() < settings().orphan_life + Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_that_was_ended_has_its_kind() {
    let token = Token::generate().unwrap();
    for (body, kind) in [
        (r#"{"error":"cancelled","started":true}"#, ErrorKind::Cancelled),
        (r#"{"error":"agent_stopping","started":true}"#, ErrorKind::AgentStopping),
        ("garbage", ErrorKind::Internal),
    ] {
        let frames = [frame(FrameKind::Stdout, b"0123"), frame(FrameKind::End, body.as_bytes())].concat();
        let fake = agent(&token, move |_, _| Reply::Bytes(streamed("p-1", &frames)));
        let mut stream = client(&fake, &token).exec_stream(&call("x")).await.unwrap();
        assert_eq!(all(&mut stream).await.unwrap_err().kind(), kind, "{body}");
        assert_eq!(stream.offset(), 4);
    }
    for (status, body, kind) in [
        (422, r#"{"error":"spawn_failed"}"#, ErrorKind::SpawnFailed),
        (429, r#"{"error":"queue_full"}"#, ErrorKind::Busy),
        (409, r#"{"error":"busy"}"#, ErrorKind::Busy),
        (401, r#"{"error":"unauthorized"}"#, ErrorKind::TokenMismatch),
        (501, r#"{"error":"unsupported"}"#, ErrorKind::Unsupported),
        (200, r#"{"rc":0}"#, ErrorKind::Unsupported),
        (200, "<html>", ErrorKind::ForeignProgram),
    ] {
        let fake = agent(&token, move |_, _| Reply::Bytes(http(status, "Content-Type: application/json\r\n", body)));
        let error = client(&fake, &token).exec_stream(&call("x")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {body}: {error}");
        assert_eq!(fake.requests_for("POST", "/exec").len(), 1, "an answer is never asked for twice");
    }
}

#[tokio::test]
async fn garbage_is_no_output_and_not_asked_for_again() {
    let token = Token::generate().unwrap();
    for garbage in [&b"HTTP/1.1 200 OK"[..], &[9, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]] {
        let frames = [&frame(FrameKind::Stdout, b"0123"), garbage].concat();
        let fake = agent(&token, move |_, _| Reply::Bytes(streamed("p-1", &frames)));
        let mut stream = client(&fake, &token).exec_stream(&call("x")).await.unwrap();
        assert_eq!(all(&mut stream).await.unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(stream.offset(), 4, "what came before is whole");
        assert!(fake.requests_for("GET", "/processes").is_empty());
    }
}

fn impatient(fake: &Fake, token: &Token) -> AgentClient {
    let settings = podlink::host::ClientSettings { stream_keep_alive: Duration::from_millis(100), ..settings() };
    AgentClient::new(fake.address(), token.clone(), settings).unwrap()
}

#[tokio::test]
async fn a_silent_peer_is_found_by_its_missing_signs_of_life() {
    let token = Token::generate().unwrap();
    // silent after a few bytes; on another connection it goes on
    let fake = agent(&token, |request, _| match request.method.as_str() {
        "POST" => Reply::Bytes(begun("p-1", &frame(FrameKind::Stdout, b"0123"))),
        _ => Reply::Bytes(streamed("p-1", &frame(FrameKind::End, END.as_bytes()))),
    });
    let begun_at = Instant::now();
    let mut stream = impatient(&fake, &token).exec_stream(&call("x")).await.unwrap();
    assert_eq!(all(&mut stream).await.unwrap().both, b"0123");
    let took = begun_at.elapsed();
    assert!((Duration::from_millis(290)..Duration::from_secs(3)).contains(&took), "{took:?}");

    // silent for good, as a frozen guest: connections are taken and nothing is said
    let token_too = token.clone();
    let frozen = AtomicUsize::new(0);
    let fake = Fake::start(move |request, _| match request.path.as_str() {
        "/health" if frozen.load(Ordering::SeqCst) == 0 => Reply::Bytes(proved(request, &token_too, "a", "ready")),
        "/exec" => {
            frozen.store(1, Ordering::SeqCst);
            Reply::Bytes(begun("p-1", &frame(FrameKind::Stdout, b"0123")))
        }
        _ => Reply::Silence,
    });
    let begun_at = Instant::now();
    let mut stream = impatient(&fake, &token).exec_stream(&call("x")).await.unwrap();
    assert_eq!(all(&mut stream).await.unwrap_err().kind(), ErrorKind::AgentLost);
    assert!(begun_at.elapsed() < Duration::from_secs(5), "{:?}", begun_at.elapsed());
}

#[tokio::test]
async fn a_reader_that_pauses_is_no_silence_and_a_sign_of_life_is_one() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |request, _| {
        assert_eq!(request.method, "POST", "nothing broke");
        Reply::Bytes(streamed("p-1", &wire(&output(), 0)))
    });
    let mut stream = impatient(&fake, &token).exec_stream(&call("x")).await.unwrap();
    let mut got = Vec::new();
    while let Some(event) = stream.next().await {
        if let ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) = event.unwrap() {
            got.extend_from_slice(&bytes);
            if got.len() < 20 {
                tokio::time::sleep(Duration::from_millis(350)).await; // longer than three signs of life
            }
        }
    }
    assert_eq!(got, expected().both);
}

#[tokio::test]
async fn sixty_four_streams_at_one_time_stay_apart() {
    let token = Token::generate().unwrap();
    let fake = agent(&token, |request, _| {
        let payload = what(request).repeat(1000);
        let frames = [frame(FrameKind::Stdout, payload.as_bytes()), frame(FrameKind::End, END.as_bytes())].concat();
        Reply::Bytes(streamed("p-1", &frames))
    });
    let client = client(&fake, &token);
    let streams = (0..64).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut stream = client.exec_stream(&call(&format!("<{number}>"))).await.unwrap();
            let all = all(&mut stream).await.unwrap();
            assert_eq!(all.stdout, format!("<{number}>").repeat(1000).as_bytes());
        })
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.await.unwrap();
    }
}

#[tokio::test]
async fn a_job_is_begun_once_and_waited_for_over_broken_connections() {
    let token = Token::generate().unwrap();
    let (posts, gets) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let info = r#"{"process_id":"p-1","state":"running","mode":"detached","request_id":"r","created_at":"2026-11-29T14:00:00Z","output_bytes":8,"output_from":2}"#;
    let fake = agent(&token, move |request, _| match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/exec") if posts.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Close,
        ("POST", "/exec") => Reply::Bytes(http(202, "", r#"{"process_id":"p-1","pid":5}"#)),
        ("GET", "/processes/p-1") => Reply::Bytes(http(200, "", info)),
        ("GET", "/processes/p-1/output?offset=0&follow=false&watch=true") => {
            let frames = [
                frame(FrameKind::Gap, br#"{"from":0,"to":2}"#),
                frame(FrameKind::Stdout, b"234567"),
                frame(FrameKind::End, br#"{"running":true,"offset":8}"#),
            ];
            Reply::Bytes(streamed("p-1", &frames.concat()))
        }
        ("GET", "/processes/p-1/output?offset=8&follow=true&watch=true") if gets.fetch_add(1, Ordering::SeqCst) < 3 => {
            Reply::Last(begun("p-1", &frame(FrameKind::Stdout, b"")))
        }
        ("GET", "/processes/p-1/output?offset=8&follow=true&watch=true") => {
            Reply::Bytes(streamed("p-1", &wire(&output(), 8)))
        }
        ("DELETE", "/processes/p-1?keep=true&grace_ms=1500") => {
            Reply::Bytes(http(200, "", r#"{"process_id":"p-1","killed":3,"survivors":[]}"#))
        }
        ("DELETE", "/processes/p-1") => {
            Reply::Bytes(http(200, "", r#"{"process_id":"p-1","killed":0,"survivors":[]}"#))
        }
        ("POST", "/processes/p-1/signal") => {
            assert_eq!(request.body, br#"{"signal":"HUP","tree":true}"#);
            Reply::Bytes(http(200, "", r#"{"signalled":3}"#))
        }
        ("POST", "/processes/p-1/stdin") => {
            Reply::Bytes(http(200, "", &format!(r#"{{"accepted_bytes":{}}}"#, request.body.len())))
        }
        ("DELETE", "/processes/p-1/stdin") => Reply::Bytes(http(204, "", "")),
        ("DELETE", "/sessions/a%2Fb%2E%2E") => Reply::Bytes(http(200, "", r#"{"ended":2}"#)),
        _ => Reply::Bytes(http(404, "", r#"{"error":"not_found","detail":"no such process"}"#)),
    });
    let client = client(&fake, &token);
    let job = client.spawn(&call("x")).await.unwrap();
    assert_eq!(job.process_id(), "p-1");
    let sent = fake.requests_for("POST", "/exec");
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].header("x-request-id"), sent[1].header("x-request-id"));
    assert!(String::from_utf8_lossy(&sent[0].body).contains(r#""detach":true"#));

    assert_eq!(job.info().await.unwrap().state, ProcessState::Running);
    let mut kept = job.output(None, false).await.unwrap();
    let kept_all = all(&mut kept).await.unwrap();
    assert_eq!((kept_all.both.as_slice(), kept_all.exit, kept_all.gaps), (&b"234567"[..], None, Vec::new()));
    assert_eq!(kept.offset(), 8);
    assert_eq!(job.wait().await.unwrap().rc, 7);

    assert_eq!(job.signal("HUP", true).await.unwrap(), 3);
    assert_eq!(job.write_stdin(&vec![7; 600_000]).await.unwrap(), 600_000);
    job.close_stdin().await.unwrap();
    assert_eq!(job.kill_and_keep(Some(Duration::from_millis(1500))).await.unwrap().killed, 3);
    assert_eq!(job.kill(None).await.unwrap().killed, 0);
    assert_eq!(client.end_session("a/b..").await.unwrap(), 2);
    let nothing = client.job("../health");
    assert_eq!(nothing.info().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(nothing.output(Some(3), true).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_attach_is_refused_with_its_reason_and_a_wrong_key_is_found() {
    let token = Token::generate().unwrap();
    let upgrade = |accept: &str| {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
    };
    for (answer, kind) in [
        (http(429, "", r#"{"error":"queue_full"}"#), ErrorKind::Busy),
        (http(404, "", r#"{"error":"not_found"}"#), ErrorKind::NotFound),
        (http(200, "", "{}"), ErrorKind::Unsupported),
        (http(502, "", "<html>"), ErrorKind::ForeignProgram),
        (upgrade("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").into_bytes(), ErrorKind::Internal),
        (upgrade("").into_bytes(), ErrorKind::Internal),
    ] {
        let fake = agent(&token, move |_, _| Reply::Bytes(answer.clone()));
        let client = client(&fake, &token);
        let request = AttachRequest { exec: call("x"), pty: None };
        assert_eq!(client.attach(&request).await.unwrap_err().kind(), kind);
        assert_eq!(client.attach_to("p-1", Some(5)).await.unwrap_err().kind(), kind);
        assert!(!fake.recorded().contains("argv"), "the call was not sent");
        assert_eq!(fake.requests_for("GET", "/processes/p-1/attach?offset=5").len(), 1);
    }
}

#[tokio::test]
async fn a_squatter_sees_no_token_of_a_stream_or_an_attach() {
    let token = Token::generate().unwrap();
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/health" => Reply::Bytes(proved(request, &Token::generate().unwrap(), "a", "ready")),
        _ => Reply::Bytes(streamed("p-1", &wire(&output(), 0))),
    });
    let client = client(&fake, &token);
    let request = AttachRequest { exec: call("x"), pty: None };
    assert_eq!(client.exec_stream(&call("x")).await.unwrap_err().kind(), ErrorKind::TokenMismatch);
    assert_eq!(client.attach(&request).await.unwrap_err().kind(), ErrorKind::TokenMismatch);
    assert_eq!(client.spawn(&call("x")).await.unwrap_err().kind(), ErrorKind::TokenMismatch);
    assert_eq!(client.job("p-1").output(None, true).await.unwrap_err().kind(), ErrorKind::TokenMismatch);
    fake.never_saw(&token);
}
