//! Streamed answers of `POST /exec`: their two forms, their pace, and what becomes of a call whose caller leaves.

use std::{
    io::{BufRead as _, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use podlink::protocol::{MEDIA_EVENTS, MEDIA_MULTIPLEXED};
use serde_json::{Value, json};

use crate::support::{Agent, Item, Stream, http::Pending, processes, stream::Events, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
const FORMS: [&str; 2] = [MEDIA_MULTIPLEXED, MEDIA_EVENTS];

/// The body of a call that runs a script for `sh`.
pub(crate) fn script(source: &str) -> Value {
    json!({ "script": BASE64_STANDARD.encode(source) })
}

/// Bytes that look like nothing else, the same for the same seed.
pub(crate) fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random(&mut seed).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The next number of a series (splitmix64).
pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What an agent has open, and what its calls have left behind.
#[derive(Debug, PartialEq, PartialOrd)]
struct Left {
    files: usize,
    children: usize,
    run_folders: usize,
    cgroups: usize,
    connections: usize,
}

impl Left {
    /// Of an agent whose folder of runs is `runs`.
    fn of(agent: &Agent, runs: &Path) -> Self {
        let entries = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
        let own = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
        Self {
            files: agent.open_files(),
            children: processes::children_of(agent.pid()).len(),
            run_folders: entries(&own.path()) - 1, // beside them lies the lock
            cgroups: cgroups_of(agent.pid()),
            connections: agent.connections(),
        }
    }
}

/// Control groups of calls of this agent: they lie in its own.
fn cgroups_of(agent: u32) -> usize {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let Some(top) = mounts.lines().find(|line| line.starts_with("cgroup2 ")).and_then(|line| line.split(' ').nth(1))
    else {
        return 0;
    };
    let own = std::fs::read_to_string(format!("/proc/{agent}/cgroup")).unwrap();
    let inside = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let Ok(entries) = std::fs::read_dir(Path::new(top).join(inside)) else { return 0 };
    let ours = format!("podlink-{agent}-");
    entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

/// Waits until every buffer on the way to a reader that stands still is full, and the program waits with it.
fn wait_until_held(agent: &Agent, process_id: &str) {
    let mut seen = u64::MAX;
    wait_for("the program to be held", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        let now = agent.info(process_id)["output_bytes"].as_u64().unwrap();
        std::mem::replace(&mut seen, now) == now
    });
}

#[test]
fn both_forms_say_the_same() {
    let agent = Agent::start();
    let body = script("echo out; sleep 0.1; echo err >&2; exit 7");
    for form in FORMS {
        let mut stream = Stream::of(agent.begin_stream(form, &body, &[]));
        assert_eq!(stream.head.header("content-type"), Some(form));
        let process_id = stream.process_id();
        if form == MEDIA_EVENTS {
            let Some(Item::Started(started)) = stream.next_word() else { panic!() };
            assert_eq!(started["process_id"], json!(process_id));
            assert_eq!(agent.info(&process_id)["pid"], started["pid"]);
        }
        assert_eq!(stream.next_word(), Some(Item::Stdout(b"out\n".into())));
        assert_eq!(stream.next_word(), Some(Item::Stderr(b"err\n".into())));
        let Some(Item::End(end)) = stream.next_word() else { panic!() };
        assert_eq!((&end["rc"], &end["signal"], &end["timed_out"]), (&json!(7), &Value::Null, &json!(false)));
        assert_eq!((&end["stdout_bytes"], &end["stderr_bytes"]), (&json!(4), &json!(4)));
        assert_eq!((&end["stdout"], &end["truncated"]), (&json!(""), &json!(false)));
        assert_eq!((&end["killed"], &end["process_id"]), (&json!(0), &json!(process_id)));
        assert_eq!(stream.next(), None);
    }
    for accept in ["application/json", "*/*", "text/html", "text/event-stream;q=0.1, application/json"] {
        let answer = agent.begin_stream(accept, &body, &[]).answer();
        assert_eq!((answer.status, &answer.json["stdout"]), (200, &json!("out\n")), "{accept}");
    }
}

#[test]
fn the_decoder_of_events_keeps_to_the_standard() {
    let mut events = Events::default();
    // a mark, each of the three ends of a line, an event without data, and one that is cut
    let bytes = b"\xef\xbb\xbf: x\r\nevent:stdout\rdata:eA==\r\n\r\nevent: stdout\n\nevent: exit\ndata:{}";
    let items: Vec<Item> = bytes.iter().flat_map(|byte| events.push(&[*byte])).collect();
    assert_eq!(items, [Item::Alive, Item::Stdout(b"x".into())]);
    let mut events = Events::default();
    assert_eq!(events.push(b"event: stdout\ndata: eA==\n\n:\n"), [Item::Stdout(b"x".into()), Item::Alive]);
}

#[test]
fn output_comes_before_the_program_ends() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    for (n, form) in FORMS.into_iter().enumerate() {
        let go = folder.path().join(n.to_string());
        let source = format!("echo first; until [ -e {} ]; do sleep 0.02; done; echo last", go.display());
        let mut stream = Stream::of(agent.begin_stream(form, &script(&source), &[]));
        stream.wait_for_stdout("first\n");
        std::fs::write(&go, "").unwrap();
        let whole = stream.whole();
        assert_eq!((&*whole.stdout, &whole.end["rc"]), (&b"last\n"[..], &json!(0)));
    }
}

#[test]
fn both_streams_arrive_exactly() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let (out, err) = (noise(1, 10_010_000), noise(2, 10_010_000));
    for (name, bytes) in [("out", &out), ("err", &err)] {
        for (n, block) in bytes.chunks(70_000).enumerate() {
            std::fs::write(folder.path().join(format!("{name}{n}")), block).unwrap();
        }
    }
    let source = "i=0; while [ $i -lt 143 ]; do cat out$i; cat err$i >&2; i=$((i+1)); done";
    let mut body = script(source);
    body["cwd"] = json!(folder.path());
    for form in FORMS {
        let whole = Stream::of(agent.begin_stream(form, &body, &[])).whole();
        assert!(whole.stdout == out && whole.stderr == err, "{} and {}", whole.stdout.len(), whole.stderr.len());
        assert_eq!((&whole.end["stdout_bytes"], whole.gaps.len()), (&json!(10_010_000), 0));
    }
}

#[test]
fn the_last_word_tells_signals_and_time_outs() {
    let agent = Agent::start();
    for form in FORMS {
        let whole = Stream::of(agent.begin_stream(form, &script("echo x; kill -9 $$"), &[])).whole();
        assert_eq!((&whole.end["rc"], &whole.end["signal"]), (&json!(137), &json!(9)));
        let tag = processes::unique_seconds();
        let mut body = script(&format!("echo so far; sleep {tag} & sleep {tag}"));
        body["timeout_sec"] = json!(1);
        let whole = Stream::of(agent.begin_stream(form, &body, &[])).whole();
        assert_eq!(whole.stdout, b"so far\n");
        assert_eq!((&whole.end["rc"], &whole.end["timed_out"]), (&json!(124), &json!(true)));
        assert_eq!(whole.end["survivors"], json!([]));
        assert!(whole.end["killed"].as_u64().unwrap() >= 1, "{}", whole.end);
        assert!(processes::with_args(&["sleep", &tag]).is_empty());
    }
}

#[test]
fn a_streamed_call_may_ask_for_no_time_out() {
    let agent = Agent::with(&["--exec-timeout-cap", "1"]);
    let mut body = script("sleep 2.5; echo done");
    let whole = agent.stream(&body).whole();
    assert_eq!(whole.end["timed_out"], json!(true), "the default is no more than the cap");
    body["timeout_sec"] = json!(0);
    let whole = agent.stream(&body).whole();
    assert_eq!((&*whole.stdout, &whole.end["rc"]), (&b"done\n"[..], &json!(0)));
    agent.post("/exec", &body).is_error(400, "bad_request");
}

#[test]
fn a_call_that_does_not_run_is_refused_in_json() {
    let agent = Agent::with(&["--exec-slots", "1", "--exec-queue", "1", "--exec-queue-wait", "300"]);
    let refused = |form: &str, body: &Value, status: u16, code: &str| {
        agent.begin_stream(form, body, &[]).answer().is_error(status, code);
    };
    let tag = processes::unique_seconds();
    for form in FORMS {
        refused(form, &json!({ "argv": ["/no/such/program"] }), 422, "spawn_failed");
        refused(form, &json!({ "argv": ["true"], "cwd": "/no/such/folder" }), 422, "spawn_failed");
        refused(form, &json!({ "argv": [] }), 400, "bad_request");
        refused(form, &json!({ "script": "%" }), 400, "bad_base64");
        refused(form, &json!({ "argv": ["true"], "timeout_sec": -1 }), 400, "bad_request");
        let running = Stream::of(agent.begin_stream(form, &json!({ "argv": ["sleep", tag] }), &[]));
        refused(form, &json!({ "argv": ["true"], "queue": false }), 409, "busy");
        refused(form, &json!({ "argv": ["true"] }), 429, "queue_full");
        assert_eq!(agent.delete(&format!("/processes/{}", running.process_id())).status, 200);
        assert_eq!(running.whole().end["error"], json!("cancelled"));
    }
    let waiting = Agent::with(&["--drain", "20"]);
    let running = waiting.stream(&script("sleep 1; echo end"));
    waiting.terminate();
    wait_for("the agent to drain", PATIENCE, || waiting.get("/health").status == 503);
    let refused = waiting.begin_stream(MEDIA_MULTIPLEXED, &json!({ "argv": ["true"] }), &[]).answer();
    assert_eq!(refused.is_error(503, "agent_stopping")["started"], json!(false));
    assert_eq!(running.whole().stdout, b"end\n", "what ran goes on");
}

#[test]
fn a_quiet_stream_shows_signs_of_life() {
    let agent = Agent::with(&["--stream-keep-alive", "100"]);
    let folder = tempfile::tempdir().unwrap();
    for (n, form) in FORMS.into_iter().enumerate() {
        let go = folder.path().join(n.to_string());
        let source = format!("echo a; until [ -e {} ]; do sleep 0.02; done; echo b", go.display());
        let mut stream = Stream::of(agent.begin_stream(form, &script(&source), &[]));
        stream.wait_for_stdout("a\n");
        for _ in 0..3 {
            assert_eq!(stream.next(), Some(Item::Alive));
        }
        std::fs::write(&go, "").unwrap();
        assert_eq!(stream.next_word(), Some(Item::Stdout(b"b\n".into())));
        assert_eq!(stream.offset, 4, "a sign of life is no output");
        assert_eq!(stream.whole().end["rc"], json!(0));
    }
}

#[test]
fn a_reader_that_stands_still_loses_nothing_and_costs_nothing() {
    const PERIOD: usize = 10_007; // of no power of two: a piece in the wrong place shows
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let pattern = noise(3, PERIOD).repeat(1000);
    std::fs::write(folder.path().join("block"), &pattern).unwrap();
    let mut body = script(
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do cat block; done",
    );
    body["cwd"] = json!(folder.path());
    let mut stream = agent.stream(&body);
    let mut taken = 0;
    let mut take = |bytes: &[u8]| {
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = &pattern[taken % PERIOD..];
            let count = rest.len().min(from.len());
            assert!(rest[..count] == from[..count], "wrong bytes from {taken} on");
            taken += count;
            rest = &rest[count..];
        }
        taken
    };
    loop {
        let Some(Item::Stdout(bytes)) = stream.next() else { panic!() };
        if take(&bytes) > 1_000_000 {
            break;
        }
    }
    wait_until_held(&agent, &stream.process_id());
    let info = || agent.info(&stream.process_id())["output_bytes"].as_u64().unwrap();
    let (held, memory) = (info(), agent.resident_kib());
    let begun = Instant::now();
    let (mut times, mut most) = (Vec::new(), 0);
    while begun.elapsed() < Duration::from_secs(8) {
        let asked = Instant::now();
        assert_eq!(agent.http("GET", "/health").send().status, 200);
        times.push(asked.elapsed());
        most = most.max(agent.resident_kib());
        std::thread::sleep(Duration::from_millis(20));
    }
    // one look in a hundred may have met a machine that was busy with other tests
    times.sort();
    let slowest = times[times.len() * 99 / 100];
    assert!(slowest < Duration::from_millis(100), "/health took {slowest:?}");
    assert_eq!(info(), held, "the program waits");
    assert!(held < 30_000_000, "{held} bytes are on the way");
    assert!(most < memory + 2048, "from {memory} to {most} KiB");
    loop {
        match stream.next().unwrap() {
            Item::Stdout(bytes) => take(&bytes),
            Item::End(end) => {
                assert_eq!((&end["rc"], &end["stdout_bytes"]), (&json!(0), &json!(300_210_000)));
                break;
            }
            Item::Alive => continue,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(take(b""), 300_210_000);
    println!("measured: reader stopped 8 s in 300 MB: VmRSS {memory} to {most} KiB, p99 of /health {slowest:?}");
}

#[test]
fn a_reader_that_stands_still_does_not_keep_the_agent() {
    let agent = Agent::with(&["--drain", "1"]);
    let streams: Vec<Stream> = FORMS.map(|form| Stream::of(agent.begin_stream(form, &script("yes"), &[]))).into();
    for stream in &streams {
        wait_until_held(&agent, &stream.process_id());
    }
    let pids: Vec<u32> = processes::children_of(agent.pid());
    let begun = Instant::now();
    agent.terminate();
    wait_for("the agent's end", PATIENCE, || !agent.lives());
    let took = begun.elapsed();
    println!("measured: an agent whose readers stand still ended {took:?} after SIGTERM");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(!pids.is_empty() && processes::children_of(agent.pid()).is_empty());
}

#[test]
fn much_output_takes_little_memory() {
    let agent = Agent::start();
    let mut stream = agent.stream(&json!({ "argv": ["head", "-c", "268435456", "/dev/zero"] }));
    let begun = Instant::now();
    let zeros = vec![0; 64 * 1024];
    let mut total = 0;
    loop {
        match stream.next().unwrap() {
            Item::Stdout(bytes) => {
                assert!(bytes == zeros[..bytes.len()]);
                total += bytes.len();
            }
            Item::Alive => {}
            Item::End(end) => break assert_eq!(end["rc"], json!(0)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(total, 268_435_456);
    let peak = agent.peak_memory_kib();
    println!("measured: 256 MiB streamed in {:?}, VmHWM {peak} KiB", begun.elapsed());
    assert!(peak < 64 * 1024, "{peak} KiB");
}

#[test]
fn a_streamed_call_without_an_id_dies_with_its_caller() {
    let agent = Agent::with(&["--exec-slots", "1"]);
    let tag = processes::unique_seconds();
    for (form, reset) in [(FORMS[0], false), (FORMS[1], true)] {
        // one that is quiet, one whose caller takes nothing
        for source in [format!("echo x; sleep {tag}"), format!("sleep {tag} & yes")] {
            let mut stream = Stream::of(agent.begin_stream(form, &script(&source), &[]));
            while !matches!(stream.next_word(), Some(Item::Stdout(_))) {}
            let (process_id, left) = (stream.process_id(), Instant::now());
            stream.connection.hang_up(reset);
            let info = agent.ended(&process_id);
            assert_eq!(info["error"]["error"], json!("cancelled"), "{info}");
            assert!(left.elapsed() < Duration::from_secs(5), "{:?}", left.elapsed());
            assert!(processes::with_args(&["sleep", &tag]).is_empty());
        }
    }
    assert_eq!(agent.stream(&script("echo free")).whole().stdout, b"free\n");
}

#[test]
fn a_streamed_call_with_an_id_is_taken_up_again() {
    let agent = Agent::with(&["--orphan-grace", "3000"]);
    let folder = tempfile::tempdir().unwrap();
    let whole = noise(4, 20_000_000);
    std::fs::write(folder.path().join("noise"), &whole).unwrap();
    let mut body = script("cat noise");
    body["cwd"] = json!(folder.path());
    for (n, form) in FORMS.into_iter().enumerate() {
        let id = format!("taken-up-{n}");
        let mut stream = Stream::of(agent.begin_stream(form, &body, &[("x-request-id", &id)]));
        let mut got = Vec::new();
        // each connection breaks while as much as there can be is on its way
        for _ in 0..5 {
            let until = got.len() + 1_000_000;
            while got.len() < until {
                match stream.next_word().unwrap() {
                    Item::Stdout(bytes) => got.extend(bytes),
                    Item::Started(_) => {}
                    other => panic!("{other:?} after {} bytes", got.len()),
                }
            }
            let (process_id, offset) = (stream.process_id(), stream.offset);
            assert_eq!(offset, got.len() as u64);
            wait_until_held(&agent, &process_id);
            stream.connection.hang_up(n == 1);
            stream = agent.output(&process_id, &format!("offset={offset}"));
        }
        let rest = stream.whole();
        got.extend(rest.stdout);
        assert!(got == whole && rest.gaps.is_empty(), "{} bytes, {:?}", got.len(), rest.gaps);
        assert_eq!(rest.end["rc"], json!(0));
    }

    let tag = processes::unique_seconds();
    let mut stream = Stream::of(agent.begin_stream(
        MEDIA_MULTIPLEXED,
        &script(&format!("echo x; sleep {tag}")),
        &[("x-request-id", "stays-away-from-its-stream")],
    ));
    stream.wait_for_stdout("x\n");
    let (process_id, left) = (stream.process_id(), Instant::now());
    stream.connection.hang_up(false);
    assert_eq!(agent.ended(&process_id)["error"]["error"], json!("cancelled"));
    assert!(left.elapsed() > Duration::from_secs(2), "{:?}", left.elapsed());
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
}

#[test]
fn a_repeated_streamed_request_joins_from_the_beginning() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let mut body = script("echo x >>counter; echo begin; until [ -e go ]; do sleep 0.02; done; echo end >&2");
    body["cwd"] = json!(folder.path());
    let id = [("x-request-id", "stream-repeat")];
    let mut first = Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &id));
    first.wait_for_stdout("begin\n");
    let second = Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &id));
    assert_eq!(second.process_id(), first.process_id());
    agent.begin_stream(MEDIA_EVENTS, &body, &id).answer().is_error(409, "conflict");
    agent.begin_stream("application/json", &body, &id).answer().is_error(409, "conflict");
    std::fs::write(folder.path().join("go"), "").unwrap();
    let late = |stream: Stream| {
        let whole = stream.whole();
        assert_eq!((&*whole.stdout, &*whole.stderr), (&b"begin\n"[..], &b"end\n"[..]));
        whole.end
    };
    let end = late(second);
    assert_eq!(first.whole().end, end);
    assert_eq!(late(Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &id))), end);
    assert_eq!(std::fs::read_to_string(folder.path().join("counter")).unwrap(), "x\n");

    // what the ring no longer holds is told
    let body = json!({ "argv": ["head", "-c", "10000000", "/dev/zero"] });
    let id = [("x-request-id", "stream-repeat-gap")];
    assert_eq!(Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &id)).whole().stdout.len(), 10_000_000);
    let late = Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &id)).whole();
    assert_eq!(late.gaps, [(0, 10_000_000 - 8 * 1024 * 1024)]);
    assert_eq!((late.stdout.len(), &late.end["rc"]), (8 * 1024 * 1024, &json!(0)));
}

#[test]
fn an_answer_to_http_1_0_is_a_stream_too() {
    let agent = Agent::start();
    let body = script("echo a; echo b >&2; exit 3").to_string();
    let call = agent.authorized("POST", "/exec").line("POST /exec HTTP/1.0").without("Connection");
    let call = call.header("Accept", MEDIA_MULTIPLEXED).body(body.clone());
    let mut connection = call.begin();
    connection.more(body.as_bytes()).unwrap();
    let answer = connection.answer();
    assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None));
    let mut decoder = podlink::protocol::FrameDecoder::default();
    decoder.push(&answer.body);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        frames.push((frame.kind.number(), String::from_utf8(frame.payload).unwrap()));
    }
    let (last, json) = frames.pop().unwrap();
    assert_eq!((last, serde_json::from_str::<Value>(&json).unwrap()["rc"].clone()), (3, json!(3)));
    frames.sort(); // the two streams of a program that writes to both at once come in either order
    assert_eq!(frames, [(1, "a\n".to_owned()), (2, "b\n".to_owned())]);
}

/// Keeps every core busy until it is dropped.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn start() -> Self {
        let spin = |_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "while :; do :; done"]).spawn().unwrap()
        };
        Self((0..std::thread::available_parallelism().unwrap().get()).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn no_result_is_short_under_load() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let agent = Agent::start();
    let expected = (1..=500).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    let (body, left, _busy) = (json!({ "argv": ["seq", "1", "500"] }), AtomicUsize::new(500), Busy::start());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let (agent, left, body, expected) = (&agent, &left, &body, &expected);
            scope.spawn(move || {
                while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                    let whole = Stream::of(agent.begin_stream(FORMS[n % 2], body, &[])).whole();
                    assert!(whole.stdout == expected.as_bytes(), "{:?}", String::from_utf8_lossy(&whole.stdout));
                    assert_eq!((&whole.end["rc"], &whole.end["stdout_bytes"]), (&json!(0), &json!(expected.len())));
                }
            });
        }
    });
    println!("measured: 500 x seq 1 500 on 16 connections, all cores busy: {:?}", begun.elapsed());
}

#[test]
fn two_thousand_clients_that_vanish_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let agent = Agent::with(&["--runs-dir", runs.to_str().unwrap(), "--orphan-grace", "200"]);
    let tag = processes::unique_seconds();
    let bodies = [script(&format!("sleep {tag}")), script("yes"), json!({ "argv": ["true"] })];
    // what a call leaves behind is drained by a process that stays: it is there from now on
    agent.stream(&script(&format!("sleep {tag} & true"))).whole();
    wait_for("what it left behind", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 1);
    processes::kill(&processes::with_args(&["sleep", &tag]));
    // a tree that could not be given up at once is asked again with the next call
    let look = || {
        agent.stream(&json!({ "argv": ["true"] })).whole();
        Left::of(&agent, &runs)
    };
    wait_for("the agent to rest", PATIENCE, || {
        let left = look();
        left.connections == 0 && left.children == 1 && left.cgroups == 0 && left.run_folders == 0
    });
    let (before, threads) = (Left::of(&agent, &runs), agent.threads());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let (agent, bodies) = (&agent, &bodies);
            scope.spawn(move || {
                let mut seed = thread;
                for n in 0..125_usize {
                    let id = format!("vanishes-{thread}-{n}");
                    let named = [("x-request-id", id.as_str())];
                    let headers = if n % 4 == 0 { &named[..] } else { &[] };
                    let pending = agent.begin_stream(FORMS[n % 2], &bodies[n % 3], headers);
                    let stay = Duration::from_micros(random(&mut seed) % 50_000);
                    std::thread::sleep(stay); // how long a client stays is what this is about
                    pending.hang_up(n % 5 == 0);
                }
            });
        }
    });
    let (vanished, after) = (begun.elapsed(), Instant::now());
    let mut left = None;
    let deadline = Instant::now() + PATIENCE;
    while left.as_ref() != Some(&before) {
        assert!(Instant::now() < deadline, "{left:?} instead of {before:?}");
        left = Some(look());
    }
    let all_gone = after.elapsed();
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
    assert!(agent.threads() <= threads.max(64), "{} threads", agent.threads());
    let list = agent.get("/processes").json;
    let lives = list["processes"].as_array().unwrap().iter().filter(|call| call["state"] != "exited").count();
    assert_eq!(lives, 0);
    assert_eq!(agent.get("/sessions").json["sessions"], json!([]));
    // every slot is free, and each call of theirs is counted above
    let slots = agent.get("/whoami").json["limits"]["exec_slots"].as_u64().unwrap();
    let held: Vec<Stream> = (0..slots)
        .map(|_| {
            let body = json!({ "argv": ["sleep", tag], "queue": false });
            Stream::of(agent.begin_stream(MEDIA_MULTIPLEXED, &body, &[]))
        })
        .collect();
    let now = Left::of(&agent, &runs);
    assert!(
        now.children > before.children && now.run_folders == held.len() && now.connections == held.len(),
        "{now:?}"
    );
    println!("measured: {} calls hold {now:?}", held.len());
    for stream in held {
        stream.connection.hang_up(false);
    }
    wait_for("them to be gone", PATIENCE, || processes::with_args(&["sleep", &tag]).is_empty());
    let peak = agent.peak_memory_kib();
    println!("measured: 2,000 vanishing clients in {vanished:?}, all gone {all_gone:?} later, VmHWM {peak} KiB");
    assert!(peak < 160 * 1024, "{peak} KiB");
}

#[test]
fn a_connection_is_used_again_after_a_stream() {
    let agent = Agent::start();
    let body = json!({ "argv": ["echo", "x"] }).to_string();
    let call = agent.authorized("POST", "/exec").without("Connection").header("Accept", MEDIA_EVENTS);
    let call = call.body(body.clone());
    let bytes = [call.head(), body.into_bytes()].concat();
    let mut connection = Pending::send(agent.port(), &bytes);
    for _ in 0..3 {
        let mut text = String::new();
        let mut reader = std::io::BufReader::new(connection.0.try_clone().unwrap());
        while !text.ends_with("\r\n0\r\n\r\n") {
            assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
        }
        assert!(text.contains("event: exit") && text.contains("data: eAo="), "{text}");
        connection.0.write_all(&bytes).unwrap();
    }
}
