//! Detached calls and `/processes`: what lives on without its caller, and how it is reached.

use std::{
    io::Read as _,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use podlink::protocol::{MEDIA_EVENTS, MEDIA_MULTIPLEXED};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    stream::{noise, random, script},
    support::{Agent, Item, Stream, processes, stream::Dechunk, wait_for},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// What the ring of a call holds.
const RING: u64 = 2 * 1024 * 1024;

/// An agent that does not wait for its jobs when it is stopped.
fn hasty() -> Agent {
    Agent::with(&["--drain", "0"])
}

#[test]
fn a_job_outlives_its_connection_and_is_remembered() {
    let agent = hasty();
    let folder = tempfile::tempdir().unwrap();
    let mut body =
        json!({ "argv": ["sh", "-c", "echo out; echo err >&2; until [ -e go ]; do sleep 0.02; done; exit 3"] });
    body["cwd"] = json!(folder.path());
    body["detach"] = json!(true);
    for accept in ["application/json", MEDIA_MULTIPLEXED] {
        let begun = Instant::now();
        let answer = agent.begin_stream(accept, &body, &[("x-request-id", "job-1")]).answer();
        assert!(begun.elapsed() < Duration::from_secs(5), "it does not wait for the end");
        if accept == MEDIA_MULTIPLEXED {
            answer.is_error(409, "conflict"); // the same id, in another form
            continue;
        }
        assert_eq!((answer.status, answer.header("content-type")), (202, Some("application/json")));
        let again = agent.post_with("/exec", &body, &[("x-request-id", "job-1")]);
        assert_eq!((again.status, &again.json), (202, &answer.json), "a repeat starts nothing");
        let id = answer.json["process_id"].as_str().unwrap();
        let info = agent.info(id);
        assert_eq!((&info["state"], &info["mode"]), (&json!("running"), &json!("detached")));
        assert_eq!((&info["pid"], &info["argv"]), (&answer.json["pid"], &body["argv"]));
        assert_eq!((&info["request_id"], &info["session"]), (&json!("job-1"), &Value::Null));
        std::fs::write(folder.path().join("go"), "").unwrap();
        let info = agent.ended(id);
        assert_eq!((&info["result"]["rc"], &info["output_bytes"]), (&json!(3), &json!(8)));
        assert!(info["ended_at"].as_str() >= info["started_at"].as_str(), "{info}");
        for _ in 0..2 {
            let whole = agent.output(id, "").whole();
            assert_eq!((&*whole.stdout, &*whole.stderr), (&b"out\n"[..], &b"err\n"[..]));
            assert_eq!(whole.end, info["result"], "the stream's last word is what is remembered");
        }
    }
    for (method, path) in [("GET", ""), ("DELETE", ""), ("GET", "/output"), ("POST", "/stdin"), ("DELETE", "/stdin")] {
        agent.call(method, &format!("/processes/p-none{path}"), &[], b"").answer().is_error(404, "not_found");
    }
    agent.post("/processes/p-none/signal", &json!({ "signal": "TERM" })).is_error(404, "not_found");
    agent.post("/exec", &json!({ "argv": ["/no/such"], "detach": true })).is_error(422, "spawn_failed");
}

/// Output in the order in which it came: runs of one stream.
#[derive(Debug, Default, PartialEq)]
struct Sequence(Vec<(u8, Vec<u8>)>);

impl Sequence {
    fn add(&mut self, kind: u8, bytes: &[u8]) {
        match self.0.last_mut() {
            _ if bytes.is_empty() => {}
            Some((last, run)) if *last == kind => run.extend_from_slice(bytes),
            _ => self.0.push((kind, bytes.into())),
        }
    }

    fn of(&self, kind: u8) -> Vec<u8> {
        self.0.iter().filter(|(of, _)| *of == kind).flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Stdout(bytes) => self.add(1, bytes),
            Item::Stderr(bytes) => self.add(2, bytes),
            Item::Alive | Item::Started(_) | Item::End(_) => {}
            Item::Gap { .. } => panic!("{item:?}"),
        }
    }

    /// All that an answer carries which was cut somewhere; how many bytes of output that was.
    fn take_cut(&mut self, raw: &[u8]) -> u64 {
        let Some(head) = raw.windows(4).position(|four| four == b"\r\n\r\n") else { return 0 };
        let mut body = Vec::new();
        Dechunk::default().push(&raw[head + 4..], &mut body);
        let (mut rest, mut count) = (&body[..], 0);
        while let Some((header, after)) = rest.split_first_chunk::<8>() {
            let len = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            let payload = &after[..len.min(after.len())];
            if header[0] < 3 {
                self.add(header[0], payload);
                count += payload.len() as u64;
            }
            assert_ne!(header[0], 4, "a gap");
            rest = &after[payload.len()..];
        }
        count
    }
}

#[test]
fn a_connection_may_be_cut_anywhere() {
    const PIECES: usize = 60;
    const CUTS: usize = 100;
    const AHEAD: u64 = RING / 2;
    let seed = u64::from(std::process::id());
    println!("seed: {seed}");
    let mut seed = seed;
    let agent = hasty();
    let folder = tempfile::tempdir().unwrap();
    let (mut out, mut err, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..PIECES {
        let mut size = 0;
        for (name, all) in [("out", &mut out), ("err", &mut err)] {
            let piece = noise(random(&mut seed), usize::try_from(random(&mut seed) % 50_000).unwrap());
            std::fs::write(folder.path().join(format!("{n}.{name}")), &piece).unwrap();
            size += piece.len() as u64;
            all.extend(piece);
        }
        sizes.push(size);
    }
    let total = (out.len() + err.len()) as u64;
    // it writes when it is told to, so the ring is never overrun, however slow this machine is
    let mut body = script("while read -r n; do cat $n.out; cat $n.err >&2; done");
    body["open_stdin"] = json!(true);
    body["cwd"] = json!(folder.path());
    let id = agent.spawn(&body);
    let read_so_far = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reference = scope.spawn(|| {
            let (mut stream, mut sequence) = (agent.output(&id, "offset=0"), Sequence::default());
            while let Some(item) = stream.next() {
                sequence.take(&item);
                read_so_far.store(stream.offset, Ordering::SeqCst);
            }
            sequence
        });
        let (mut sequence, mut offset) = (Sequence::default(), 0);
        let (mut told, mut to_come) = (0, 0);
        let mut tell = |offset: u64| {
            while told < PIECES && to_come - offset < AHEAD / 2 {
                wait_for("the other reader", PATIENCE, || to_come - read_so_far.load(Ordering::SeqCst) < AHEAD);
                let answer = agent.write_stdin(
                    &id,
                    if told == PIECES - 1 { "?close=true" } else { "" },
                    format!("{told}\n").as_bytes(),
                );
                assert_eq!(answer.status, 200, "{answer:?}");
                to_come += sizes[told];
                told += 1;
            }
        };
        let mut inside_a_head = 0;
        for cut in 0..CUTS {
            tell(offset);
            // more is there than is read, so that no read has to wait
            let most = if cut % 4 == 0 { 400 } else { (total / CUTS as u64 * 2).min(AHEAD / 4) };
            let wanted = random(&mut seed) % most;
            let mut connection = agent.call("GET", &format!("/processes/{id}/output?offset={offset}"), &[], b"");
            let mut raw = Vec::new();
            connection.0.by_ref().take(wanted).read_to_end(&mut raw).unwrap();
            connection.hang_up(cut % 2 == 0);
            let count = sequence.take_cut(&raw);
            inside_a_head += usize::from(count == 0);
            offset += count;
        }
        assert!(inside_a_head > 0 && offset > total / 4, "{inside_a_head}, {offset}");
        tell(offset);
        let mut stream = agent.output(&id, &format!("offset={offset}"));
        while let Some(item) = stream.next() {
            sequence.take(&item);
            tell(stream.offset);
        }
        assert!(sequence == reference.join().unwrap(), "in the order in which the other one had it");
        assert_eq!(stream.offset, total);
        assert!(sequence.of(1) == out && sequence.of(2) == err);
    });
    let whole = agent.output(&id, "offset=0").whole();
    assert_eq!(whole.gaps, [(0, total - RING)]);
    agent.ended(&id);
}

#[test]
fn a_job_that_outruns_its_ring_tells_what_is_gone() {
    let agent = hasty();
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(5, 5_000_000);
    std::fs::write(folder.path().join("first"), &bytes[..100_000]).unwrap();
    std::fs::write(folder.path().join("rest"), &bytes[100_000..]).unwrap();
    let mut body = script(
        "cat first; until [ -e go ]; do sleep 0.02; done; cat rest; until [ -e end ]; do sleep 0.02; done; exit 4",
    );
    body["cwd"] = json!(folder.path());
    let id = agent.spawn(&body);
    // one reader takes the first bytes and stands still, another comes later
    let mut early = agent.output(&id, "");
    let mut got = Vec::new();
    while got.len() < 100_000 {
        let Some(Item::Stdout(piece)) = early.next_word() else { panic!() };
        got.extend(piece);
    }
    std::fs::write(folder.path().join("go"), "").unwrap();
    let total = bytes.len() as u64;
    wait_for("all of its output", PATIENCE, || agent.info(&id)["output_bytes"] == json!(total));
    let tail = total - RING;
    assert_eq!(agent.info(&id)["output_from"], json!(tail));
    let at = |offset: u64| usize::try_from(offset).unwrap();
    for form in [MEDIA_MULTIPLEXED, MEDIA_EVENTS] {
        for (query, from) in [("offset=0", Some(0)), ("offset=1000", Some(1000)), ("", None), ("offset=4000000", None)]
        {
            let path = format!("/processes/{id}/output?follow=false&{query}");
            let mut stream = Stream::of(agent.call("GET", &path, &[("accept", form)], b""));
            stream.offset = match query {
                "" => tail,
                _ => query["offset=".len()..].parse().unwrap(),
            };
            let begin = stream.offset.max(tail);
            let whole = stream.whole();
            assert_eq!(whole.gaps, from.map(|from| (from, tail)).into_iter().collect::<Vec<_>>(), "{query}");
            assert!(whole.stdout == bytes[at(begin)..], "{query}: {} bytes", whole.stdout.len());
            assert_eq!(whole.end, json!({ "running": true, "offset": total }));
        }
    }
    // at the head there is nothing yet; beyond it there is nothing to wait for
    let none = agent.output(&id, &format!("offset={total}&follow=false")).whole();
    assert_eq!((none.stdout.len(), &none.end["offset"]), (0, &json!(total)));
    let beyond = agent.get(&format!("/processes/{id}/output?offset={}", total + 1));
    assert!(beyond.is_error(400, "bad_request")["detail"].as_str().unwrap().contains(&total.to_string()));
    for wrong in ["offset=-1", "offset=x", "follow=maybe"] {
        agent.get(&format!("/processes/{id}/output?{wrong}")).is_error(400, "bad_request");
    }
    let waiting = agent.output(&id, &format!("offset={total}"));
    std::fs::write(folder.path().join("end"), "").unwrap();
    assert_eq!(waiting.whole().end["rc"], json!(4));
    let after = agent.output(&id, "offset=4999990&follow=false").whole();
    assert_eq!((&*after.stdout, &after.end["rc"]), (&bytes[4_999_990..], &json!(4)));
    // what the one who stood still had on its way is whole, and then it is told
    let from = early.offset;
    let mut gaps = Vec::new();
    while let Some(item) = early.next() {
        match item {
            Item::Stdout(piece) => {
                let begin = at(early.offset) - piece.len();
                assert!(piece == bytes[begin..at(early.offset)], "wrong bytes from {begin} on");
            }
            Item::Gap { from, to } => gaps.push((from, to)),
            Item::End(_) => assert_eq!(early.offset, total),
            _ => {}
        }
    }
    // one where the machine is quick; between two it had been handed a little more
    assert!(gaps.iter().all(|(begin, to)| *begin >= from && begin < to && *to <= tail), "{gaps:?}");
}

#[test]
fn ending_a_job_ends_its_tree_and_forgets_it() {
    let agent = hasty();
    let tag = processes::unique_seconds();
    for (keep, query) in [(false, ""), (true, "?keep=true")] {
        let source = format!("echo said; setsid sleep {tag} & (trap '' TERM; sleep {tag}; sleep {tag}) & sleep {tag}");
        let id = agent.spawn(&script(&source));
        wait_for("its tree", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 3);
        let stream = agent.output(&id, "offset=0");
        let ended = agent.delete(&format!("/processes/{id}{query}"));
        assert!(processes::with_args(&["sleep", &tag]).is_empty());
        assert_eq!(ended.json["survivors"], json!([]), "{ended:?}");
        assert!(ended.json["killed"].as_u64().unwrap() >= 5, "{ended:?}");
        let whole = stream.whole();
        assert_eq!((&*whole.stdout, &whole.end["error"]), (&b"said\n"[..], &json!("cancelled")));
        assert_eq!((&whole.end["started"], &whole.end["killed"]), (&json!(true), &ended.json["killed"]));
        if keep {
            assert_eq!(agent.info(&id)["error"], whole.end);
            assert_eq!(agent.output(&id, "").whole().stdout, b"said\n");
            let again = agent.delete(&format!("/processes/{id}"));
            assert_eq!((again.status, &again.json["killed"]), (200, &json!(0)), "it had ended before");
        }
        agent.get(&format!("/processes/{id}")).is_error(404, "not_found");
        agent.get(&format!("/processes/{id}/output")).is_error(404, "not_found");
        agent.delete(&format!("/processes/{id}")).is_error(404, "not_found");
    }
    assert_eq!(agent.get("/processes").json["processes"], json!([]));
}

#[test]
fn a_program_gets_the_time_to_clean_up_that_is_asked_for() {
    let agent = hasty();
    let body = script("trap 'sleep 1; echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.05; done");
    for (query, said) in [("&grace_ms=15000", "ready\ncleaned\n"), ("&grace_ms=0", "ready\n"), ("", "ready\n")] {
        let id = agent.spawn(&body);
        agent.output(&id, "offset=0").wait_for_stdout("ready\n");
        let begun = Instant::now();
        let ended = agent.delete(&format!("/processes/{id}?keep=true{query}"));
        assert_eq!((ended.status, &ended.json["survivors"]), (200, &json!([])));
        let whole = agent.output(&id, "").whole();
        assert_eq!(String::from_utf8_lossy(&whole.stdout), said, "{query}");
        assert!(begun.elapsed() < Duration::from_secs(10), "the grace ends with the program");
    }
    let id = agent.spawn(&body);
    agent.delete(&format!("/processes/{id}?grace_ms=60001")).is_error(400, "bad_request");
    agent.delete(&format!("/processes/{id}?grace_ms=x")).is_error(400, "bad_request");
    assert_eq!(agent.info(&id)["state"], "running");
    agent.stop();
}

#[test]
fn a_shorter_grace_counts_and_so_does_the_agents_end() {
    let agent = Agent::with(&["--drain", "0"]);
    let tag = processes::unique_seconds();
    let stubborn = |agent: &Agent| {
        let id = agent.spawn(&script(&format!("trap : TERM; while :; do sleep {tag}; done")));
        wait_for("the program", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 1);
        id
    };
    let id = stubborn(&agent);
    let sleeper = processes::with_args(&["sleep", &tag]);
    let patient = agent.call("DELETE", &format!("/processes/{id}?grace_ms=60000"), &[], b"");
    // the TERM meets the sleeper, and the program starts another
    wait_for("the first wish", PATIENCE, || processes::with_args(&["sleep", &tag]) != sleeper);
    let begun = Instant::now();
    let ended = agent.delete(&format!("/processes/{id}?grace_ms=0"));
    assert_eq!((ended.status, &ended.json["survivors"]), (200, &json!([])));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(patient.answer().status, 200);

    let id = stubborn(&agent);
    let sleeper = processes::with_args(&["sleep", &tag]);
    let patient = agent.call("DELETE", &format!("/processes/{id}?grace_ms=60000"), &[], b"");
    wait_for("the wish", PATIENCE, || processes::with_args(&["sleep", &tag]) != sleeper);
    agent.stop();
    assert!(processes::with_args(&["sleep", &tag]).is_empty(), "nobody outlives the agent");
    drop(patient);
}

#[test]
fn signals_reach_the_leader_or_the_tree() {
    let agent = hasty();
    let child = "trap 'echo child' USR1; while :; do sleep 0.05; done";
    let source = format!("trap 'echo leader' USR1; sh -c \"{child}\" & echo ready; while :; do sleep 0.05; done");
    let id = agent.spawn(&script(&source));
    let path = format!("/processes/{id}/signal");
    let mut stream = agent.output(&id, "offset=0");
    stream.wait_for_stdout("ready\n");
    for name in ["USR1", "SIGUSR1", "10"] {
        let answer = agent.post(&path, &json!({ "signal": name }));
        assert_eq!((answer.status, &answer.json["signalled"]), (200, &json!(1)), "{name}");
        stream.wait_for_stdout("leader\n");
    }
    // the child may not have set its trap yet; then its shell dies of the signal and never says a word
    wait_for("the child to have set its trap", PATIENCE, || {
        processes::with_args(&["sh", "-c", child]).iter().any(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
            u64::from_str_radix(&caught, 16).unwrap() & (1 << 9) != 0
        })
    });
    let answer = agent.post(&path, &json!({ "signal": "USR1", "tree": true }));
    assert!(answer.json["signalled"].as_u64().unwrap() >= 2, "{answer:?}");
    let mut said = String::new();
    while !(said.contains("leader") && said.contains("child")) {
        match stream.next_word().unwrap() {
            Item::Stdout(bytes) => said += std::str::from_utf8(&bytes).unwrap(),
            Item::Stderr(_) => {} // shells tell of children that died of it
            other => panic!("{other:?}"),
        }
    }
    for wrong in [json!({ "signal": "NONE" }), json!({ "signal": "" }), json!({}), json!({ "signal": "99" })] {
        agent.post(&path, &wrong).is_error(400, "bad_request");
    }
    assert_eq!(agent.post(&path, &json!({ "signal": "KILL" })).json["signalled"], 1);
    assert_eq!(agent.ended(&id)["result"]["signal"], json!(9));
    agent.post(&path, &json!({ "signal": "TERM" })).is_error(409, "conflict");
    processes::kill(&processes::with_args(&["sh", "-c", child])); // it was left behind, and lives on
}

#[test]
fn stdin_is_fed_piece_by_piece_and_closed() {
    let agent = hasty();
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(6, 10_000_000);
    let mut body = script("cat >file; echo done");
    body["open_stdin"] = json!(true);
    body["cwd"] = json!(folder.path());
    body["stdin"] = json!(BASE64_STANDARD.encode(&bytes[..300_000]));
    let id = agent.spawn(&body);
    let mut at = 300_000;
    for size in [1, 999_999, 3_000_000, 1_700_000] {
        let answer = agent.write_stdin(&id, "", &bytes[at..at + size]);
        assert_eq!((answer.status, &answer.json["accepted_bytes"]), (200, &json!(size)));
        at += size;
    }
    assert_eq!(agent.info(&id)["state"], "running");
    let answer = agent.write_stdin(&id, "?close=true", &bytes[at..]);
    assert_eq!(answer.json["accepted_bytes"], json!(bytes.len() - at));
    assert_eq!(agent.output(&id, "").whole().stdout, b"done\n");
    assert!(std::fs::read(folder.path().join("file")).unwrap() == bytes);
    let late = agent.write_stdin(&id, "", b"late");
    assert!(late.is_error(409, "conflict")["detail"].as_str().unwrap().contains("0 bytes"), "{late:?}");

    // closed by DELETE, with nothing written
    let id = agent.spawn(&json!({ "argv": ["cat"], "open_stdin": true }));
    let path = format!("/processes/{id}/stdin");
    assert_eq!(agent.delete(&path).status, 204);
    assert_eq!(agent.ended(&id)["result"]["rc"], json!(0));
    assert_eq!(agent.delete(&path).status, 204, "once more is as good");

    // a streamed call, too
    let mut stream = agent.stream(&json!({ "argv": ["cat"], "open_stdin": true }));
    let id = stream.process_id();
    for line in ["one\n", "two\n"] {
        assert_eq!(agent.write_stdin(&id, "", line.as_bytes()).status, 200);
        stream.wait_for_stdout(line);
    }
    assert_eq!(agent.write_stdin(&id, "?close=true", b"").json["accepted_bytes"], 0);
    assert_eq!(stream.whole().end["rc"], json!(0));
}

#[test]
fn stdin_that_is_closed_takes_nothing() {
    let agent = hasty();
    let tag = processes::unique_seconds();
    let mut body = script(&format!("head -c 100000 >/dev/null; exec 0<&-; echo closed; sleep {tag}"));
    body["open_stdin"] = json!(true);
    let id = agent.spawn(&body);
    let refused = agent.write_stdin(&id, "", &vec![b'x'; 1_000_000]);
    let detail = refused.is_error(409, "conflict")["detail"].as_str().unwrap();
    let accepted: u64 = detail.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!((100_000..400_000).contains(&accepted), "what a pipe holds more at most: {detail}");
    let again = agent.write_stdin(&id, "", b"x");
    assert!(again.is_error(409, "conflict")["detail"].as_str().unwrap().contains("0 bytes"), "{again:?}");
    assert_eq!(agent.info(&id)["state"], "running");
    assert_eq!(agent.delete(&format!("/processes/{id}")).status, 200);

    // a writer that waits for a program which does not read is told of its end
    let id = agent.spawn(&json!({ "argv": ["sleep", tag], "open_stdin": true }));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| agent.write_stdin(&id, "", &vec![b'x'; 1_000_000]));
        assert_eq!(agent.delete(&format!("/processes/{id}")).status, 200);
        let answer = writer.join().unwrap();
        assert!(matches!(answer.status, 404 | 409), "{answer:?}");
    });

    // calls that have none
    let id = agent.spawn(&json!({ "argv": ["sleep", tag] }));
    agent.write_stdin(&id, "", b"x").is_error(409, "conflict");
    agent.delete(&format!("/processes/{id}/stdin")).is_error(409, "conflict");
    agent.post("/exec", &json!({ "argv": ["cat"], "open_stdin": true })).is_error(400, "bad_request");
    agent.stop();
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
}

#[test]
fn a_writer_that_vanishes_keeps_no_call_alive() {
    let agent = hasty();
    let tag = processes::unique_seconds();
    let stream = agent.stream(&json!({ "argv": ["sleep", tag], "open_stdin": true }));
    let id = stream.process_id();
    let path = format!("/processes/{id}/stdin");
    let writer = agent.call("POST", &path, &[], &vec![b'x'; 200_000]); // more than a pipe holds, and it is not read
    wait_for("the writer to wait", PATIENCE, || agent.connections() >= 2);
    stream.connection.hang_up(false);
    assert_eq!(agent.ended(&id)["error"]["error"], json!("cancelled"));
    writer.answer().is_error(409, "conflict");
}

#[test]
fn jobs_end_with_their_agent() {
    let agent = Agent::with(&["--drain", "1"]);
    let tag = processes::unique_seconds();
    let stubborn = format!("trap '' TERM; setsid sleep {tag} & echo up; while :; do sleep {tag}; done");
    let id = agent.spawn(&script(&stubborn));
    let mut stream = agent.output(&id, "offset=0");
    stream.wait_for_stdout("up\n");
    wait_for("its tree", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 2);
    let begun = Instant::now();
    agent.terminate();
    let end = stream.whole().end;
    assert_eq!((&end["error"], &end["started"]), (&json!("agent_stopping"), &json!(true)), "{end}");
    wait_for("the agent's end", PATIENCE, || !agent.lives());
    let took = begun.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(8)).contains(&took), "took {took:?}");
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
}

#[test]
fn jobs_of_a_killed_agent_are_swept_by_the_next() {
    for flags in [&[][..], &["--no-cgroups"]] {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs").display().to_string();
        let flags = [flags, &["--runs-dir", &runs]].concat();
        let agent = Agent::with(&flags);
        let tag = processes::unique_seconds();
        // one of them would not listen if it were asked
        let id = agent.spawn(&script(&format!("setsid sleep {tag} & trap '' TERM; sleep {tag}; sleep {tag}")));
        wait_for("its tree", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 2);
        agent.kill();
        assert_eq!(processes::with_args(&["sleep", &tag]).len(), 2);
        let next = Agent::with(&flags);
        assert!(processes::with_args(&["sleep", &tag]).is_empty());
        next.get(&format!("/processes/{id}")).is_error(404, "not_found");
        assert_eq!(next.get("/processes").json["processes"], json!([]));
    }
}

#[test]
fn jobs_take_no_slots_and_are_bounded_by_themselves() {
    let agent = Agent::with(&["--drain", "0", "--exec-slots", "1"]);
    let tag = processes::unique_seconds();
    let body = json!({ "argv": ["sleep", tag] });
    let jobs: Vec<String> = (0..128).map(|_| agent.spawn(&body)).collect();
    let mut detached = body.clone();
    detached["detach"] = json!(true);
    let refused = agent.post("/exec", &detached);
    refused.is_error(429, "queue_full");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(agent.post("/exec", &json!({ "argv": ["echo", "slot"] })).json["stdout"], "slot\n");
    assert_eq!(agent.delete(&format!("/processes/{}", jobs[77])).json["killed"], 1);
    agent.spawn(&body);
    agent.post("/exec", &detached).is_error(429, "queue_full");
    agent.stop();
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
}

#[test]
fn the_newest_records_are_kept() {
    let agent = hasty();
    let first = agent.post("/exec", &json!({ "argv": ["true"] })).json["process_id"].as_str().unwrap().to_owned();
    let tag = processes::unique_seconds();
    let living = agent.spawn(&json!({ "argv": ["sleep", tag] }));
    let second = agent.stream(&json!({ "argv": ["echo", "x"] }));
    let second_id = second.process_id();
    drop(second.whole());
    let run = |count: usize| {
        for _ in 0..count {
            assert_eq!(agent.post("/exec", &json!({ "argv": ["true"] })).status, 200);
        }
    };
    run(254);
    assert_eq!(agent.info(&first)["result"]["rc"], json!(0));
    run(1);
    agent.get(&format!("/processes/{first}")).is_error(404, "not_found");
    assert_eq!(agent.info(&second_id)["mode"], "streamed");
    assert_eq!(agent.info(&living)["state"], "running", "one that lives is no record");
    let list = agent.get("/processes").json;
    let list = list["processes"].as_array().unwrap();
    assert_eq!(list.len(), 257);
    assert_eq!((&list[0]["process_id"], &list[1]["process_id"]), (&json!(living), &json!(second_id)), "in order");
    assert!(list.iter().map(|call| call["created_at"].as_str().unwrap()).is_sorted());
    agent.stop();
}

#[test]
fn the_output_of_ended_calls_is_bounded_in_all() {
    let agent = hasty();
    let body = json!({ "argv": ["head", "-c", "2097152", "/dev/zero"] });
    let mut named = body.clone();
    named["detach"] = json!(true);
    // what the id of its request is good for is another matter
    let run = |n: usize| {
        let answer = agent.post_with("/exec", &named, &[("x-request-id", &format!("fills-{n}"))]);
        let id = answer.json["process_id"].as_str().unwrap().to_owned();
        agent.ended(&id);
        id
    };
    let jobs: Vec<String> = (0..40).map(run).collect();
    for (n, id) in jobs.iter().enumerate() {
        let info = agent.info(id);
        // 64 MiB in all, each with a little beside its bytes
        let kept = n >= 40 - 31;
        assert_eq!(info["output_from"], json!(if kept { 0 } else { RING }), "{n}");
        assert_eq!((&info["output_bytes"], &info["result"]["rc"]), (&json!(RING), &json!(0)));
    }
    let whole = agent.output(&jobs[0], "offset=0").whole();
    assert_eq!((whole.gaps, whole.stdout.len(), &whole.end["rc"]), (vec![(0, RING)], 0, &json!(0)));
    let whole = agent.output(&jobs[39], "offset=0").whole();
    assert_eq!((whole.gaps.len(), whole.stdout.len()), (0, 2 * 1024 * 1024));
    // deleted ones hold nothing more, though their ids are remembered
    for id in &jobs {
        assert_eq!(agent.delete(&format!("/processes/{id}")).status, 200);
    }
    for n in 40..80 {
        let id = run(n);
        assert_eq!(agent.delete(&format!("/processes/{id}")).status, 200);
    }
    let peak = agent.peak_memory_kib();
    println!("measured: 80 ended jobs of 2 MiB each, VmHWM {peak} KiB");
    assert!(peak < 128 * 1024, "{peak} KiB");
}

#[test]
fn buffered_calls_are_listed_while_they_run() {
    let agent = hasty();
    let tag = processes::unique_seconds();
    let secret = format!("hunter2-{tag}");
    let source = format!("echo {secret} >/dev/null; sleep {tag}");
    let mut body = script(&source);
    body["env"] = json!({ "PASSWORD": secret });
    body["stdin"] = json!(BASE64_STANDARD.encode(&secret));
    let call = agent.begin_post("/exec", &body, &[]);
    let argv = agent.begin_post("/exec", &json!({ "argv": ["sleep", tag] }), &[]);
    wait_for("both to run", PATIENCE, || processes::with_args(&["sleep", &tag]).len() == 2);
    let mut list = agent.get("/processes");
    wait_for("the agent to know it", PATIENCE, || {
        list = agent.get("/processes");
        list.json["processes"].as_array().unwrap().iter().all(|call| call["state"] == "running")
    });
    assert!(!String::from_utf8_lossy(&list.body).contains("hunter2"), "{list:?}");
    assert!(!String::from_utf8_lossy(&list.body).contains(&body["script"].as_str().unwrap()[..20]), "{list:?}");
    let all = list.json["processes"].as_array().unwrap();
    let find = |field: &str| all.iter().find(|call| call.get(field).is_some()).unwrap();
    let (scripted, listed) = (find("script_sha256"), find("argv"));
    assert_eq!(scripted["script_sha256"], json!(hex::encode(Sha256::digest(&source))));
    assert!(scripted.get("argv").is_none() && listed.get("script_sha256").is_none());
    assert_eq!(listed["argv"], json!(["sleep", tag]));
    for info in [scripted, listed] {
        assert_eq!((&info["state"], &info["mode"]), (&json!("running"), &json!("buffered")));
        let id = info["process_id"].as_str().unwrap();
        agent.get(&format!("/processes/{id}/output")).is_error(409, "conflict");
        agent.write_stdin(id, "", b"x").is_error(409, "conflict");
        assert_eq!(agent.delete(&format!("/processes/{id}?keep=true")).status, 200);
        let kept = agent.info(id);
        assert_eq!((&kept["state"], &kept["error"]["error"]), (&json!("exited"), &json!("cancelled")));
    }
    for call in [call, argv] {
        assert_eq!(call.answer().is_error(409, "cancelled")["started"], json!(true));
    }
    assert!(!agent.log().contains("hunter2"), "nor in the log");
    // a command line of any length is told in part
    let id = agent.spawn(&json!({ "argv": ["true", "x".repeat(100_000)] }));
    let argv = agent.ended(&id)["argv"].clone();
    assert_eq!((&argv[0], argv[1].as_str().unwrap().len() < 17_000), (&json!("true"), true));
    // the output of an ended one is in its answer alone
    let done = agent.post("/exec", &json!({ "argv": ["echo", "hunter2"] })).json;
    let info = agent.info(done["process_id"].as_str().unwrap());
    assert_eq!((&info["result"]["stdout"], &info["result"]["stdout_bytes"]), (&json!(""), &json!(8)));
    assert_eq!((&info["output_bytes"], &info["output_from"]), (&json!(8), &json!(8)));
}
