//! `GET /events`: everything that the agent does, in order, exactly, and without an end.

use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{
    Agent,
    agent::write_private,
    events::{Event, Events},
    schema, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

fn counter(event: &Event) -> u64 {
    event.id.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// What the events say a program wrote, on both streams.
fn output_of(events: &[Event]) -> Vec<u8> {
    let piece = |event: &Event| match (&event.data["text"], &event.data["data_b64"]) {
        (Value::String(text), Value::Null) => text.clone().into_bytes(),
        (Value::Null, Value::String(base64)) => BASE64_STANDARD.decode(base64).unwrap(),
        other => panic!("{other:?}"),
    };
    events.iter().filter(|event| event.name == "exec.output").flat_map(piece).collect()
}

#[test]
fn a_call_is_told_from_its_start_to_its_end() {
    let agent = Agent::start();
    let mut events = Events::open(&agent, "", &[]);
    let call = json!({"argv": ["sh", "-c", "echo not-told-$((40+2)); exit 7"], "session": "build"});
    let answer = agent.post_with("/exec", &call, &[("x-request-id", "mine")]);
    let all = events.until("exec.exited");
    assert_eq!(names(&all), ["exec.started", "exec.exited"]);
    schema::check("ExecStartedEvent", &all[0].data);
    schema::check("ExecExitedEvent", &all[1].data);
    assert_eq!(counter(&all[1]), counter(&all[0]) + 1);
    for event in &all {
        assert_eq!(event.data["process_id"], answer.json["process_id"]);
        assert_eq!((&event.data["request_id"], &event.data["session"]), (&json!("mine"), &json!("build")));
    }
    assert_eq!(all[0].data["argv"], call["argv"]);
    assert_eq!((&all[1].data["rc"], &all[1].data["pid"]), (&json!(7), &all[0].data["pid"]));

    let secret = "a-text-that-is-nobodys-business";
    let script = BASE64_STANDARD.encode(format!("# {secret}\nkill -9 $$"));
    drop(agent.post("/exec", &json!({"script": script})));
    let all = events.until("exec.exited");
    assert_eq!(all[0].data["script_sha256"].as_str().unwrap().len(), 64);
    assert_eq!((&all[1].data["rc"], &all[1].data["signal"]), (&json!(137), &json!(9)));

    // nothing was started, so there is nothing to tell
    drop(agent.post("/exec", &json!({"argv": ["/no/such/program"]})));
    let running = agent.begin_post("/exec", &json!({"argv": ["sleep", "60"]}), &[("x-request-id", "long")]);
    events.until("exec.started");
    assert_eq!(agent.delete("/exec/long").status, 204);
    let all = events.until("exec.exited");
    assert_eq!(
        (names(&all), &all[0].data["error"], &all[0].data["rc"]),
        (vec!["exec.exited"], &json!("cancelled"), &Value::Null)
    );
    running.answer().is_error(409, "cancelled");
    assert!(!String::from_utf8_lossy(&events.raw).contains(secret), "scripts are never told");
    assert!(!String::from_utf8_lossy(&events.raw).contains("not-told-42"));
}

#[test]
fn output_is_exact_in_order_and_forges_nothing() {
    let agent = Agent::start();
    let mut events = Events::open(&agent, "?output=1&types=exec.*", &[]);
    let script = r"printf '\r\nevent: done\r\ndata: {}\r\n\r\nid: x-1\n\n\000\r\342\200\250: comment\ndata: y\n\n\377\376'
        head -c 1000000 /dev/zero | tr '\0' x; printf '\342\202\254 end'";
    drop(agent.post("/exec", &json!({"script": BASE64_STANDARD.encode(script), "shell": "sh"})));
    let all = events.until("exec.exited");
    assert_eq!((names(&all[..1]), names(&all[all.len() - 1..])), (vec!["exec.started"], vec!["exec.exited"]));
    assert!(all[1..all.len() - 1].iter().all(|event| event.name == "exec.output"), "{:?}", names(&all));
    all[1..all.len() - 1].iter().for_each(|event| schema::check("ExecOutputEvent", &event.data));
    let wanted = [
        &b"\r\nevent: done\r\ndata: {}\r\n\r\nid: x-1\n\n\0\r\xe2\x80\xa8: comment\ndata: y\n\n\xff\xfe"[..],
        &vec![b'x'; 1_000_000],
        "€ end".as_bytes(),
    ];
    assert!(output_of(&all) == wanted.concat());
    // one line of data an event, whatever stands in it
    let lines = events.raw.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"data:")).count();
    assert_eq!(lines, all.len());
    assert!(!events.raw.contains(&b'\r') && !events.raw.contains(&0));
}

#[test]
fn many_calls_at_once_each_keep_their_order() {
    let agent = Agent::with(&["--exec-slots", "8"]);
    let mut events = Events::open(&agent, "?output=1&types=exec.*", &[]);
    let calls: Vec<_> = (0..40)
        .map(|number| {
            agent.begin_post("/exec", &json!({"argv": ["sh", "-c", format!("echo {number}; echo {number} >&2")]}), &[])
        })
        .collect();
    let mut all = Vec::new();
    while all.iter().filter(|event: &&Event| event.name == "exec.exited").count() < 40 {
        all.push(events.next());
    }
    for call in calls {
        let id = call.answer().json["process_id"].clone();
        let own: Vec<_> =
            all.iter().filter(|event| event.data["process_id"] == id).map(|event| event.name.as_str()).collect();
        assert_eq!(own, ["exec.started", "exec.output", "exec.output", "exec.exited"]);
    }
    for pair in all.windows(2) {
        assert_eq!(counter(&pair[1]), counter(&pair[0]) + 1);
    }
}

/// S-04: ids from anywhere.
#[test]
fn who_comes_back_gets_the_rest_once_or_one_gap() {
    let agent = Agent::with(&["--events-kept", "6"]);
    let mut events = Events::open(&agent, "?since=0", &[]);
    let first = events.until("agent.ready");
    assert_eq!(names(&first), ["gap", "agent.started", "agent.ready"]);
    schema::check("GapEvent", &first[0].data);
    schema::check("AgentStartedEvent", &first[1].data);
    schema::check("PlainEvent", &first[2].data);
    let epoch = first[1].id.rsplit_once('-').unwrap().0.to_owned();
    assert!(first[1].data["agent_id"].as_str().unwrap().starts_with(&epoch));
    for _ in 0..4 {
        drop(agent.post("/exec", &json!({"argv": ["true"]})));
    }
    // ten events by now, of which the last six are held
    assert_eq!(counter(&events.until("exec.exited")[1]), 4);
    while events.last_id() != format!("{epoch}-10") {
        events.next();
    }
    for (since, reason) in [
        (format!("{epoch}-3"), Some("expired")),
        (format!("{epoch}-0"), Some("expired")),
        (format!("{epoch}-11"), Some("future")),
        ("0123-7".to_owned(), Some("epoch")),
        ("7".to_owned(), Some("malformed")),
        ("%0D%0Adata: x".to_owned(), Some("malformed")),
        (format!("{epoch}-4"), None),
        (format!("{epoch}-8"), None),
        (format!("{epoch}-10"), None),
    ] {
        for by_header in [false, true] {
            let mut again = if by_header {
                // an old address with a newer header, as browsers' readers have it
                Events::open(&agent, "?since=old", &[("Last-Event-ID", &since)])
            } else {
                Events::open(&agent, &format!("?since={}", since.replace(' ', "%20")), &[])
            };
            let mut from = since.rsplit('-').next().unwrap().parse().unwrap_or(0) + 1;
            if let Some(reason) = reason {
                let gap = again.next();
                assert_eq!((gap.name.as_str(), &gap.data["reason"]), ("gap", &json!(reason)), "{since}");
                assert_eq!(gap.data["first"], format!("{epoch}-5"));
                from = 5;
            }
            let counters: Vec<u64> = (from..=10).map(|_| counter(&again.next())).collect();
            assert_eq!(counters, (from..=10).collect::<Vec<_>>(), "{since}");
            assert_eq!(again.last_id(), format!("{epoch}-10"));
        }
    }
}

#[test]
fn it_answers_before_the_guest_is_ready_and_to_nobody_without_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("install.done");
    let agent = Agent::launch_with_token(&["--ready-file", gate.to_str().unwrap()], &[], true);
    wait_for("the token", PATIENCE, || agent.authorized("GET", "/whoami").send().status == 200);
    let mut events = Events::open(&agent, "?types=agent.*", &[]);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(events.next().name, "agent.ready");
    std::fs::remove_file(&gate).unwrap();
    wait_for("the gate to be missed", PATIENCE, || agent.http("GET", "/health").send().status == 503);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(events.next().name, "agent.ready", "told again where it was not for a while");

    let mut steps = Events::open(&agent, "?types=install.step&since=0", &[]);
    assert_eq!(steps.next().name, "gap");
    for (stage, missing) in [("installing", 1), ("ready", 0), ("installing", 1), ("ready", 0)] {
        let step = steps.next();
        let waiting_for = step.data["waiting_for"].as_array().map(Vec::len);
        assert_eq!((&*step.name, &step.data["stage"], waiting_for), ("install.step", &json!(stage), Some(missing)));
    }

    agent.http("GET", "/events").send().is_error(401, "unauthorized");
    agent.authorized("GET", "/events").header("Origin", "http://evil.example").send().is_error(403, "forbidden_origin");
    agent.authorized("POST", "/events").send().is_error(405, "method_not_allowed");
    for query in ["types=exec", "types=,", "types=exec.output", "output=2", "output=1&output=0"] {
        agent.authorized("GET", &format!("/events?{query}")).send().is_error(400, "bad_request");
    }
    let without = Agent::launch_with_token(&[], &[], false);
    without.authorized("GET", "/events").send().is_error(503, "not_ready");
}

/// S-02: a quiet stream gives signs of life, and says where it stands.
#[test]
fn a_quiet_stream_is_kept_alive() {
    let agent = Agent::with(&["--events-keep-alive", "100"]);
    let mut events = Events::open(&agent, "?types=log", &[]);
    let begun = Instant::now();
    while events.raw.windows(9).filter(|window| window == b": alive\n\n").count() < 5 {
        assert!(events.more());
    }
    assert!(begun.elapsed() >= Duration::from_millis(500) && begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let before = events.last_id();
    drop(agent.post("/exec", &json!({"argv": ["true"]})));
    while events.last_id() == before {
        assert!(events.more(), "an id that moves without an event for this reader");
    }
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn failures_of_others_and_the_agents_own_are_told() {
    let agent = Agent::with(&["--auth-delay", "0"]);
    let mut events = Events::open(&agent, "?types=auth.*,log,token.*", &[]);
    for _ in 0..20 {
        agent.http("GET", "/processes?x=secret").bearer(&"ab".repeat(32)).send().is_error(401, "unauthorized");
    }
    let failed = events.next();
    schema::check("AuthFailedEvent", &failed.data);
    assert_eq!(
        (failed.name.as_str(), &failed.data["path"], &failed.data["peer"]),
        ("auth.failed", &json!("/processes"), &json!("127.0.0.1"))
    );
    assert_eq!(failed.data["count"], 1);
    let rest = events.next();
    assert_eq!((rest.name.as_str(), &rest.data["count"]), ("auth.failed", &json!(19)), "the rest in one");

    write_private(&agent.token_file(), "not a token");
    let log = events.next();
    schema::check("LogEvent", &log.data);
    assert_eq!((log.name.as_str(), &log.data["level"]), ("log", &json!("error")));
    assert!(log.data["text"].as_str().unwrap().contains("the token's file cannot be used"), "{log:?}");
    // the stream belongs to the old token, and ends with it
    write_private(&agent.token_file(), &"cd".repeat(32));
    let rest = events.rest();
    assert_eq!(names(&rest), ["token.rotated"]);
    agent.authorized("GET", "/events").send().is_error(401, "unauthorized");
}

#[test]
fn at_sigterm_idle_readers_hear_it_and_hold_up_nothing() {
    let agent = Agent::start();
    let readers: Vec<_> = ["", "?types=agent.*", "?output=1"].map(|query| Events::open(&agent, query, &[])).into();
    let begun = Instant::now();
    agent.stop();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for reader in readers {
        assert_eq!(names(&reader.rest()), ["agent.stopping"], "and then a stream that has ended in order");
    }
}

#[test]
fn what_ends_with_the_agent_is_told_before_it_ends() {
    let agent = Agent::with(&["--drain", "0"]);
    let reader = Events::open(&agent, "", &[]);
    let call = agent.begin_post("/exec", &json!({"argv": ["sleep", "60"]}), &[]);
    wait_for("the call", PATIENCE, || {
        agent.authorized("GET", "/processes").send().json["processes"][0]["state"] == "running"
    });
    agent.stop();
    call.answer().is_error(503, "agent_stopping");
    let all = reader.rest();
    assert_eq!(names(&all), ["exec.started", "agent.stopping", "exec.exited"]);
    assert_eq!(all[2].data["error"], "agent_stopping");
}

/// S-03, S-06: a thousand readers, ten thousand events and more, and one that has stopped.
#[test]
fn a_thousand_readers_hold_up_nobody() {
    const READERS: usize = 1000;
    const EVENTS: u64 = 10_000;
    let agent = Agent::with(&["--max-connections", "1200", "--events-kept", "1000"]);
    // their sockets are opened first, then read by a few threads
    let open = || {
        let mut stream = agent.authorized("GET", "/events?output=1&types=exec.*").begin().0;
        stream.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        let mut first = [0; 512];
        let count = stream.read(&mut first).unwrap();
        assert!(first[..count].starts_with(b"HTTP/1.1 200"));
        let head = first.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (stream, first[head..count].to_vec())
    };
    let mut readers: Vec<_> = (0..READERS).map(|_| open()).collect();
    let stopped = open();
    let mut keen = Events::open(&agent, "?output=1&types=exec.*", &[]);
    let start: u64 = keen.last_id().rsplit_once('-').unwrap().1.parse().unwrap();
    let job = agent
        .authorized("POST", "/exec")
        .json(&json!({"argv": ["sh", "-c", "while :; do echo some output; done"], "detach": true}))
        .send();
    let process = job.json["process_id"].as_str().unwrap().to_owned();

    // while it goes on, others are served
    let (mut seen, mut slowest) = (start, Duration::ZERO);
    while seen < start + EVENTS {
        let begun = Instant::now();
        assert_eq!(agent.http("GET", "/health").send().status, 200);
        slowest = slowest.max(begun.elapsed());
        for _ in 0..500 {
            seen = counter(&keen.next());
        }
    }
    assert!(slowest < Duration::from_secs(5), "/health took {slowest:?}");
    assert_eq!(agent.authorized("DELETE", &format!("/processes/{process}")).send().status, 200);
    let last = counter(keen.until("exec.exited").last().unwrap());
    assert!(last - start >= EVENTS);

    // each of them, now that it reads, has all or is told exactly what it lost
    let done = format!("-{last}\n");
    let threads: Vec<_> = (0..4)
        .map(|_| readers.split_off(readers.len() - READERS / 4))
        .map(|readers| {
            let done = done.clone();
            std::thread::spawn(move || {
                readers.into_iter().map(|(stream, first)| account(stream, first, &done)).collect::<Vec<_>>()
            })
        })
        .collect();
    for thread in threads {
        for (got, lost) in thread.join().unwrap() {
            assert_eq!(got + lost, last - start);
        }
    }
    let memory = agent.peak_memory_kib();
    println!("{} events, {memory} KiB, /health within {slowest:?}", last - start);
    assert!(memory < 200 * 1024, "{memory} KiB");
    drop(stopped);
    wait_for("the end of their connections", PATIENCE, || agent.connections() <= 1);
    assert_eq!(agent.post("/exec", &json!({"argv": ["true"]})).status, 200);
}

/// Reads up to the event whose id ends with `done`. How many events came, in order, and how many were told to be lost.
fn account(mut stream: std::net::TcpStream, mut bytes: Vec<u8>, done: &str) -> (u64, u64) {
    let mut buffer = vec![0; 1 << 20];
    let mut text = String::new();
    let (mut got, mut lost, mut at) = (0, 0, None);
    loop {
        // frames are told apart from the sizes of chunks by their beginnings: no line of JSON begins like them
        text.push_str(&String::from_utf8(std::mem::take(&mut bytes)).unwrap());
        let mut rest = text.as_str();
        while let Some(end) = rest.find("\n\n") {
            let (frame, behind) = rest.split_at(end + 2);
            rest = behind;
            let frame = &frame[frame.find("id: ").unwrap()..];
            let id = &frame[..=frame.find('\n').unwrap()];
            let counter: u64 = id.rsplit_once('-').unwrap().1.trim().parse().unwrap();
            if let Some(lagged) = frame.split_once("event: lagged\n").map(|(_, data)| data) {
                let data: Value = serde_json::from_str(lagged.trim().trim_start_matches("data: ")).unwrap();
                lost += data["lost"].as_u64().unwrap();
            } else if frame.contains("\nevent: ") {
                assert_eq!(Some(counter), at.map(|at: u64| at + 1), "in order");
                got += 1;
            }
            at = Some(counter);
            if id.ends_with(done) {
                return (got, lost);
            }
        }
        text = rest.to_owned();
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the stream ended");
        bytes.extend_from_slice(&buffer[..count]);
    }
}

/// A reader that has stopped for good, with others beside it: nothing is slower for it, and it is not cut off.
#[test]
fn one_that_stands_still_delays_nobody() {
    let agent = Agent::with(&["--write-stall", "300"]);
    let stopped = Events::open(&agent, "?output=1", &[]);
    let mut keen = Events::open(&agent, "?output=1&types=exec.*", &[]);
    let begun = Instant::now();
    let script = "head -c 30000000 /dev/zero | tr '\\0' x";
    let answer = agent.post("/exec", &json!({"script": BASE64_STANDARD.encode(script), "max_output_bytes": 0}));
    assert_eq!(answer.json["stdout_bytes"], 30_000_000);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let lost_or_got = keen.until("exec.exited");
    assert!(lost_or_got.len() > 100);
    // it wakes up: what the ring still holds comes, and the rest is told
    let mut woken = stopped;
    let all = woken.until("exec.exited");
    let lost: u64 =
        all.iter().filter(|event| event.name == "lagged").map(|event| event.data["lost"].as_u64().unwrap()).sum();
    assert!(lost > 0);
    let got = all.iter().filter(|event| event.name != "lagged").count() as u64;
    assert_eq!(got + lost, counter(all.last().unwrap()) - counter(&all[0]) + 1);
    all.iter().filter(|event| event.name == "lagged").for_each(|event| schema::check("LaggedEvent", &event.data));
}

/// A reader that somebody else wrote.
#[tokio::test]
async fn a_reader_of_another_make_reads_the_same() {
    use eventsource_stream::Eventsource as _;
    use futures_util::StreamExt as _;

    let agent = Agent::with(&["--events-keep-alive", "50"]);
    let url = format!("http://127.0.0.1:{}/events?output=1&since=0", agent.port());
    let request =
        reqwest::Client::builder().no_proxy().build().unwrap().get(url).header("authorization", agent.bearer());
    let mut events = request.send().await.unwrap().bytes_stream().eventsource();
    let mut ours = Events::open(&agent, "?output=1&since=0", &[]);
    let script =
        r"printf '\r\nevent: done\r\ndata: {}\r\n\r\n\000\r\342\200\250'; head -c 1000000 /dev/zero | tr '\0' x";
    drop(agent.post("/exec", &json!({"script": BASE64_STANDARD.encode(script), "shell": "sh"})));
    let ours = ours.until("exec.exited");
    let mut theirs = Vec::new();
    while theirs.last().is_none_or(|event: &Event| event.name != "exec.exited") {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
        theirs.push(Event { id: event.id, name: event.event, data: serde_json::from_str(&event.data).unwrap() });
    }
    let without_gap = |events: &[Event]| events.iter().filter(|event| event.name != "gap").cloned().collect::<Vec<_>>();
    assert!(without_gap(&theirs) == without_gap(&ours));
    assert_eq!(output_of(&theirs).len(), 1_000_000 + b"\r\nevent: done\r\ndata: {}\r\n\r\n\0\r".len() + 3);
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let agent = Agent::start();
    let files = agent.open_files();
    for reset in [false, true] {
        let readers: Vec<_> = (0..20).map(|_| agent.authorized("GET", "/events").begin()).collect();
        for mut reader in readers {
            reader.0.read_exact(&mut [0; 12]).unwrap();
            // more than was asked for, which nobody reads
            drop(reader.0.write_all(b"GET /events"));
            reader.hang_up(reset);
        }
    }
    wait_for("all to be gone", PATIENCE, || agent.open_files() <= files);
}
