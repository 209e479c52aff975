//! Attached calls: stdin, output, terminals, detaching and coming back, over a real WebSocket.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::frame::{
        Frame,
        coding::{CloseCode, Data, OpCode},
    },
};

use crate::support::{
    Agent, processes, wait_for,
    ws::{Attached, Said},
};

const PATIENCE: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;

/// An agent that holds calls by control groups, where they can be written here, and one that never does.
fn both() -> [Agent; 2] {
    [Agent::start(), Agent::with(&["--no-cgroups"])]
}

fn sh(script: &str) -> Value {
    json!({"argv": ["sh", "-c", script]})
}

fn lines(word: &str, numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.fold(String::new(), |text, n| text + word + &n.to_string() + "\n")
}

fn in_terminal(script: &str) -> Value {
    json!({"argv": ["sh", "-c", script], "pty": {"rows": 30, "cols": 100}})
}

#[track_caller]
fn all_gone(args: &[&str]) {
    wait_for("the call's processes to be gone", PATIENCE, || processes::with_args(args).is_empty());
}

#[track_caller]
fn appears(args: &[&str]) {
    wait_for("the call's process to be there", PATIENCE, || !processes::with_args(args).is_empty());
}

#[test]
fn stdin_goes_in_and_both_streams_come_out_apart() {
    let agent = Agent::start();
    let mut client = agent.attach(&sh("cat; echo done; echo oops >&2; exit 7"));
    assert!(client.started().starts_with("p-"));
    client.types(b"hello ");
    assert_eq!(client.next(), Said::Out(b"hello ".to_vec()));
    client.types("w\u{f6}rld\n".as_bytes());
    client.close_stdin();
    let heard = client.rest();
    assert_eq!(heard.text(), "w\u{f6}rld\ndone\n");
    assert_eq!(heard.err, b"oops\n");
    assert_eq!(heard.rc(), 7);
    let result = heard.result();
    assert_eq!(
        (&result["stdout_bytes"], &result["stderr_bytes"], &result["timed_out"]),
        (&json!(18), &json!(5), &json!(false))
    );
    assert_eq!(result["stdout"], "", "the output is not told twice");
}

#[test]
fn what_is_typed_and_said_is_in_no_log() {
    let agent = Agent::start(); // logs at the highest level
    let mut client = agent.attach(&sh("read secret; echo $secret | tr a-z A-Z; echo $secret >&2"));
    client.started();
    client.types(b"swordfish\n");
    let heard = client.rest();
    assert_eq!((heard.text().as_str(), heard.rc()), ("SWORDFISH\n", 0));
    let log = agent.log().to_lowercase();
    assert!(log.contains("/exec/attach"), "{log}");
    let hex = hex::encode("wordfish");
    for form in ["swordfish", &hex, &hex::encode("WORDFISH"), "119, 111, 114, 100, 102"] {
        assert!(!log.contains(form), "{form} stands in the log");
    }
}

#[test]
fn a_request_may_come_as_binary_and_stdin_may_be_given_with_it() {
    let agent = Agent::start();
    let mut client = agent.websocket("/exec/attach", &[("x-request-id", "mine-1")]);
    client.send(Message::binary(json!({"argv": ["cat"], "stdin": "Zmlyc3Qg"}).to_string().into_bytes()));
    let id = client.started();
    client.types(b"second");
    client.close_stdin();
    let heard = client.rest();
    assert_eq!((heard.text().as_str(), heard.rc()), ("first second", 0));
    let info = agent.call("GET", &format!("/processes/{id}"), &[], b"").answer().json;
    assert_eq!((&info["mode"], &info["request_id"]), (&json!("attached"), &json!("mine-1")), "{info}");
}

#[test]
fn what_cannot_be_started_is_an_error_and_an_end() {
    let agent = Agent::start();
    let heard = agent.attach(&json!({"argv": ["/no/such/program"]})).rest();
    assert_eq!(heard.close, Some(1000));
    assert_eq!(heard.statuses.len(), 1);
    assert_eq!(heard.result()["error"], "spawn_failed");
    let heard = agent.attach(&json!({"argv": ["sleep", "600"], "timeout_sec": 0.2})).rest();
    assert_eq!((heard.rc(), &heard.result()["timed_out"]), (124, &json!(true)));
}

#[test]
fn a_terminal_has_the_size_and_follows_it() {
    for agent in both() {
        let script = "stty size; tty; echo $TERM; trap 'stty size' WINCH; echo up; while :; do sleep 0.02; done";
        let mut request = in_terminal(script);
        let mut client = agent.attach(&request);
        let said = client.until("xterm-256color\r\nup");
        assert!(said.starts_with("30 100\r\n/dev/pts/"), "{said}");
        client.resize(132, 43);
        client.until("43 132");
        for (width, height, wanted) in [(0, 0, "1 1"), (100_000, -5, "1 65535"), (-1, i64::MAX, "65535 1")] {
            client.resize(width, height);
            client.until(wanted);
        }
        client.vanish(false);

        request["pty"] = json!({});
        assert!(agent.attach(&request).until("xterm").starts_with("24 80\r\n"), "the defaults");
        request["pty"] = json!({"rows": 0, "cols": 100_000, "term": "dumb"});
        assert!(agent.attach(&request).until("dumb").starts_with("1 65535\r\n"), "taken to the nearest");
    }
}

#[test]
fn a_size_that_comes_before_the_start_counts() {
    let agent = Agent::start();
    let mut holder = agent.attach(&json!({"argv": ["cat"], "session": "s"}));
    holder.started();
    let mut request = in_terminal("stty size");
    request["session"] = json!("s");
    let mut client = agent.attach(&request);
    client.resize(90, 20);
    client.is_heard();
    holder.close_stdin();
    assert_eq!(holder.rest().rc(), 0);
    let heard = client.rest();
    assert_eq!((heard.text().as_str(), heard.rc()), ("20 90\r\n", 0));
}

#[test]
fn ctrl_c_reaches_the_program_and_ctrl_d_ends_its_input() {
    for agent in both() {
        let mut client =
            agent.attach(&in_terminal("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.02; done"));
        client.until("ready");
        client.types(b"\x03");
        let heard = client.rest();
        assert!(heard.text().contains("caught"), "{heard:?}");
        assert_eq!(heard.rc(), 9);

        // who does not care for it dies of it
        let mut client = agent.attach(&in_terminal("echo ready; exec sleep 600"));
        client.until("ready");
        client.types(b"\x03");
        let heard = client.rest();
        assert_eq!((heard.rc(), &heard.result()["signal"]), (130, &json!(2)));

        // closing stdin is what Ctrl-D is, in the middle of a line too
        for typed in ["", "line\n", "no line"] {
            let mut client = agent.attach(&in_terminal("stty -echo; echo ready; cat; echo end"));
            client.until("ready");
            client.types(typed.as_bytes());
            client.close_stdin();
            let heard = client.rest();
            let wanted = format!("{}end\r\n", typed.replace('\n', "\r\n"));
            assert_eq!((heard.text().trim_start(), heard.rc()), (wanted.as_str(), 0), "{typed:?}");
        }
    }
}

#[test]
fn a_terminal_leaves_nothing_behind() {
    for agent in both() {
        let seconds = processes::unique_seconds();
        let before = agent.open_files();
        for _ in 0..20 {
            let heard = agent.attach(&in_terminal("stty -opost; seq 1 5000")).rest();
            assert_eq!(heard.rc(), 0);
            assert_eq!(heard.text(), lines("", 1..=5000));
            assert!(heard.err.is_empty());
        }
        // one that the hang-up of the terminal ends, as ever
        let heard = agent.attach(&in_terminal(&format!("sleep {seconds} & exit 4"))).rest();
        assert_eq!(heard.rc(), 4, "what stays behind does not hold the answer up");
        all_gone(&["sleep", &seconds]);
        // and one that it does not
        let heard = agent.attach(&in_terminal(&format!("trap '' HUP; sleep {seconds}1 & exit 5"))).rest();
        assert_eq!(heard.rc(), 5);
        let left = processes::with_args(&["sleep", &format!("{seconds}1")]);
        assert_eq!(left.len(), 1, "it lives on");
        processes::kill(&left);
        wait_for("the agent's files to be closed", PATIENCE, || agent.open_files() <= before + 3); // its drain's socket
    }
}

#[test]
fn a_client_detaches_and_another_goes_on_byte_by_byte() {
    const BLOCKS: usize = 12;
    let agent = Agent::start();
    // waits for a word after each block
    let script =
        format!("b=0; while [ $b -lt {BLOCKS} ]; do seq -f 'line %.0f' 1 2000; read word; b=$((b+1)); done; cat");
    let block = lines("line ", 1..=2000);
    let wanted = block.repeat(BLOCKS);
    let mut client = agent.attach(&sh(&script));
    let id = client.started();
    let mut got = Vec::new();
    for round in 1..=BLOCKS {
        // leaves in the middle of a block, wherever that is
        while got.len() <= (round - 1) * block.len() {
            let Said::Out(bytes) = client.next() else { panic!("no output in round {round}") };
            got.extend(bytes);
        }
        client.detach();
        let heard = client.rest();
        got.extend(&heard.out);
        assert_eq!((heard.close, &heard.result()["detached"]), (Some(1000), &json!(true)), "{:?}", heard.statuses);
        assert_eq!(heard.result()["offset"].as_u64().unwrap(), got.len() as u64, "the offset is that of what was sent");
        client = agent.attach_to(&id, Some(got.len() as u64));
        assert_eq!(client.started(), id);
        while got.len() < round * block.len() {
            let Said::Out(bytes) = client.next() else { panic!("no output in round {round}") };
            got.extend(bytes);
        }
        client.types(b"on\n");
    }
    client.types(b"the end");
    client.close_stdin();
    let heard = client.rest();
    got.extend(&heard.out);
    assert!(String::from_utf8(got).unwrap() == wanted.clone() + "the end");
    assert_eq!(heard.rc(), 0);

    // it is known still: all of it, a part, and nothing of it
    let heard = agent.attach_to(&id, None).rest();
    assert_eq!((heard.text(), heard.rc()), (wanted.clone() + "the end", 0));
    let from = wanted.len() as u64;
    assert_eq!(agent.attach_to(&id, Some(from)).rest().text(), "the end");
    let beyond = agent.upgrade(&format!("/processes/{id}/attach?offset=99999999")).bearer(agent.token());
    beyond.begin().one_answer().is_error(400, "bad_request");
}

#[test]
fn what_was_typed_before_detaching_arrives() {
    let agent = Agent::start();
    let mut client = agent.attach(&sh("sleep 0.5; wc -c"));
    let id = client.started();
    client.types(&vec![b'x'; 300_000]);
    client.close_stdin();
    client.detach();
    assert_eq!(client.rest().result()["detached"], json!(true));
    assert_eq!(agent.attach_to(&id, None).rest().text().trim(), "300000");
}

#[test]
fn a_client_that_vanishes_takes_its_call_along() {
    let agent = Agent::start();
    for how in ["reset", "end", "goodbye", "while queued"] {
        let seconds = processes::unique_seconds();
        let script = format!("trap '' TERM; sleep {seconds} & sleep {seconds}");
        let (mut holder, mut client);
        if how == "while queued" {
            holder = Some(agent.attach(&json!({"argv": ["sleep", "600"], "session": "s"})));
            holder.as_mut().unwrap().started();
            let request = json!({"argv": ["sleep", seconds], "session": "s"});
            client = agent.attach(&request);
            wait_for("it to wait", PATIENCE, || {
                let sessions = agent.call("GET", "/sessions", &[], b"").answer().json;
                sessions["sessions"][0]["queued"].as_array().is_some_and(|queued| queued.len() == 1)
            });
        } else {
            holder = None;
            client = agent.attach(&sh(&script));
            client.started();
            appears(&["sleep", &seconds]);
        }
        match how {
            "reset" => client.vanish(true),
            "end" | "while queued" => client.vanish(false),
            _ => client.close(),
        }
        all_gone(&["sleep", &seconds]);
        if let Some(holder) = holder {
            wait_for("it to be out of the queue", PATIENCE, || {
                let sessions = agent.call("GET", "/sessions", &[], b"").answer().json;
                sessions["sessions"][0]["queued"].as_array().is_some_and(Vec::is_empty)
            });
            holder.vanish(true);
        }
    }
}

#[test]
fn a_detached_job_does_not_mind_who_comes_and_goes() {
    let agent = Agent::start();
    let seconds = processes::unique_seconds();
    let request = json!({"argv": ["sh", "-c", format!("echo up; read line; echo got $line; exec sleep {seconds}")],
        "detach": true, "open_stdin": true});
    let id = agent.begin_post("/exec", &request, &[]).answer().json["process_id"].as_str().unwrap().to_owned();
    for reset in [true, false] {
        let mut client = agent.attach_to(&id, None);
        client.until("up");
        client.vanish(reset);
    }
    let mut client = agent.attach_to(&id, None);
    client.until("up");
    client.types(b"word\n");
    client.until("got word");
    let mut beside = agent.attach_to(&id, Some(0));
    assert_eq!(beside.until("got word"), "up\ngot word\n", "two at a time");
    client.close();
    appears(&["sleep", &seconds]);
    assert_eq!(agent.call("DELETE", &format!("/processes/{id}"), &[], b"").answer().status, 200);
    let heard = beside.rest();
    assert_eq!((heard.close, &heard.result()["error"]), (Some(1000), &json!("cancelled")));
}

#[test]
fn a_client_that_does_not_read_slows_the_program_and_costs_no_memory() {
    let agent = Agent::with(&["--write-stall", "300", "--ping-interval", "60000"]);
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    // tells how far it has come
    let script = format!(
        "i=0; while [ $i -lt 1200 ]; do head -c 262144 /dev/zero; i=$((i+1)); echo $i > {}; done",
        count.display()
    );
    let mut client = agent.attach(&sh(&script));
    client.started();
    let come = || std::fs::read_to_string(&count).unwrap_or_default().trim().parse::<u64>().unwrap_or(0);
    let mut last = 0;
    let mut still_since = Instant::now();
    // stands still, for five times the stall that ends other answers
    wait_for("the program to be slowed", PATIENCE, || {
        let now = come();
        if now != last {
            (last, still_since) = (now, Instant::now());
        }
        now > 0 && still_since.elapsed() > Duration::from_millis(1500)
    });
    assert!(last < 400, "it came to {last} times 256 KiB");
    assert_eq!(agent.get("/health").status, 200);
    let mut total = 0;
    let heard = loop {
        match client.next() {
            Said::Out(bytes) => total += bytes.len(),
            Said::Status(status) => break status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((total, &heard["rc"], &heard["stdout_bytes"]), (300 * MIB, &json!(0), &json!(300 * MIB)));
    assert!(agent.peak_memory_kib() < 64 * 1024, "{} KiB", agent.peak_memory_kib());
}

#[test]
fn a_program_that_does_not_read_holds_up_nothing_else() {
    let agent = Agent::start();
    let seconds = processes::unique_seconds();
    let script =
        format!("trap 'stty size' WINCH; stty raw -echo; echo ready; while :; do sleep 0.02; done; : {seconds}");
    let mut client = agent.attach(&in_terminal(&script));
    client.until("ready");
    client.types(&vec![b'x'; 500_000]); // within the bound, beyond what the terminal takes
    client.resize(77, 33);
    client.until("33 77");
    client.is_heard();
    client.detach();
    assert_eq!(client.rest().result()["detached"], json!(true));
}

#[test]
fn ten_megabytes_for_a_program_that_never_reads_cost_little_and_end_with_it() {
    let agent = Agent::with(&["--ping-interval", "1000"]);
    let mut client = agent.attach(&json!({"argv": ["sleep", "600"]}));
    let id = client.started();
    let stream = client.socket.get_ref().try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    let chunk = vec![b'x'; 64 * 1024];
    // a masked frame that is cut short by the time-out is finished by the next flush
    while sent < 10 * MIB && client.socket.send(Message::binary([&[0], &chunk[..]].concat())).is_ok() {
        sent += chunk.len();
    }
    assert_eq!(agent.get("/health").status, 200);
    std::thread::sleep(Duration::from_millis(2500)); // pings whose answer nobody can hear
    assert_eq!(agent.call("DELETE", &format!("/processes/{id}?keep=true"), &[], b"").answer().status, 200);
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let heard = client.rest();
    assert_eq!(heard.result()["error"], "cancelled", "{heard:?}");
    assert!(agent.peak_memory_kib() < 64 * 1024, "{} KiB", agent.peak_memory_kib());

    // and a client that is killed in that state is noticed
    let seconds = processes::unique_seconds();
    let mut client = agent.attach(&json!({"argv": ["sleep", seconds]}));
    client.started();
    appears(&["sleep", &seconds]);
    let stream = client.socket.get_ref().try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while client.socket.send(Message::binary([&[0], &chunk[..]].concat())).is_ok() {}
    drop(stream);
    client.vanish(false);
    all_gone(&["sleep", &seconds]);
}

#[test]
fn pieces_of_any_size_arrive_in_order() {
    let agent = Agent::start();
    let whole: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    for size in [1999, 2000, 65_537] {
        let mut client = agent.attach(&sh("cat"));
        client.started();
        for piece in whole.chunks(size) {
            client.types(piece);
        }
        client.close_stdin();
        let heard = client.rest();
        assert_eq!(heard.rc(), 0);
        assert!(heard.out == whole, "pieces of {size}: {} bytes came back", heard.out.len());
    }
    // one message in many frames of the WebSocket, empty ones among them, with a ping in between
    let mut client = agent.attach(&sh("cat"));
    client.started();
    let message = [&[0], &whole[..10_000]].concat();
    let mut first = true;
    for piece in message.chunks(2000) {
        let kind = if first { Data::Binary } else { Data::Continue };
        client.send(Message::Frame(Frame::message(piece.to_vec(), OpCode::Data(kind), false)));
        client.send(Message::Ping("p".into()));
        first = false;
    }
    client.send(Message::Frame(Frame::message(Vec::new(), OpCode::Data(Data::Continue), true)));
    client.close_stdin();
    assert!(client.rest().out == whole[..10_000]);
}

#[test]
fn a_request_id_may_be_the_word_that_is_a_path() {
    let agent = Agent::start();
    agent.delete("/exec/attach").is_error(404, "not_found");
    let call = agent.begin_post("/exec", &json!({"argv": ["sleep", "600"]}), &[("x-request-id", "attach")]);
    wait_for("the call to be known", PATIENCE, || agent.delete("/exec/attach").status == 204);
    call.answer().is_error(409, "cancelled");
}

#[track_caller]
fn is_breach(mut client: Attached, what: &str) {
    let heard = client.rest();
    assert_eq!(heard.close, Some(u16::from(CloseCode::Policy)), "{what}: {:?}", heard.statuses);
    assert!(heard.result()["error"].is_string() && heard.result()["detail"].is_string(), "{what}: {heard:?}");
}

#[test]
fn a_breach_of_the_rules_is_told_and_ends_it() {
    let agent = Agent::start();
    for first in [
        "",
        "no json",
        "[]",
        "{}",
        r#"{"argv":[]}"#,
        r#"{"script":"%%%"}"#,
        r#"{"argv":["x"],"detach":true}"#,
        r#"{"argv":["x"],"pty":{"term":"a=b"}}"#,
        r#"{"argv":["x"],"timeout_sec":-1}"#,
    ] {
        let mut client = agent.websocket("/exec/attach", &[]);
        client.send(Message::text(first));
        is_breach(client, first);
    }
    let begun = Instant::now();
    let impatient = Agent::with(&["--attach-deadline", "500"]);
    is_breach(impatient.websocket("/exec/attach", &[]), "no first message");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let too_large = vec![b' '; 9 * MIB];
    let mut client = agent.websocket("/exec/attach", &[]);
    client.send(Message::binary(too_large));
    is_breach(client, "a first message beyond 8 MiB");

    let seconds = processes::unique_seconds();
    for (what, message) in [
        ("text", Message::text("hello")),
        ("nothing", Message::binary(Vec::new())),
        ("channel 1", Message::binary(vec![1, 65])),
        ("channel 9", Message::binary(vec![9])),
        ("close of channel 1", Message::binary(vec![255, 1])),
        ("close of nothing", Message::binary(vec![255])),
        ("no size", Message::binary(b"\x04{\"width\":1}".to_vec())),
        ("a size of words", Message::binary(b"\x04{\"width\":\"1\",\"height\":2}".to_vec())),
        ("no control", Message::binary(b"\x03nonsense".to_vec())),
        ("33 MiB", Message::binary(vec![0; 33 * MIB])),
    ] {
        let mut client = agent.attach(&json!({"argv": ["sleep", seconds]}));
        client.started();
        client.send(message);
        is_breach(client, what);
        all_gone(&["sleep", &seconds]);
    }
    // 32 MiB are taken
    let mut client = agent.attach(&sh("wc -c"));
    client.started();
    client.types(&vec![b'x'; 32 * MIB - 1]);
    client.close_stdin();
    assert_eq!(client.rest().text().trim(), (32 * MIB - 1).to_string());
}

#[test]
fn admission_comes_before_the_upgrade() {
    let agent = Agent::start();
    let known = agent.attach(&sh("true")).started();
    for target in ["/exec/attach".to_owned(), format!("/processes/{known}/attach")] {
        let ask = || agent.upgrade(&target);
        ask().begin().one_answer().is_error(401, "unauthorized");
        let wrong = "0".repeat(64);
        ask().bearer(&wrong).begin().one_answer().is_error(401, "unauthorized");
        let web = ask().bearer(agent.token()).header("Origin", "http://evil.example");
        web.begin().one_answer().is_error(403, "forbidden_origin");
        let rebound = ask().bearer(agent.token()).replace("Host", "evil.example");
        rebound.begin().one_answer().is_error(403, "forbidden_host");
        let other = ask().bearer(agent.token()).header("Podlink-Protocol", "2");
        other.begin().one_answer().is_error(400, "protocol_version_mismatch");
        for missing in ["Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Connection"] {
            let plain = ask().bearer(agent.token()).without(missing);
            let answer = plain.begin().one_answer();
            assert!(answer.is_error(400, "bad_request")["hint"].as_str().unwrap().contains("WebSocket"), "{answer:?}");
        }
    }
    let unknown = agent.upgrade("/processes/p-unknown/attach").bearer(agent.token());
    unknown.begin().one_answer().is_error(404, "not_found");
    let another = agent.upgrade("/exec/attach").bearer(agent.token()).header("Podlink-If-Agent", "another");
    another.begin().one_answer().is_error(409, "conflict");
    agent.authorized("POST", "/exec/attach").send().is_error(405, "method_not_allowed");

    let waiting = Agent::launch_with_token(&["--ready-file", "/no/such/file"], &[], true);
    wait_for("its token", PATIENCE, || waiting.authorized("GET", "/whoami").send().status == 200);
    waiting.upgrade("/exec/attach").bearer(waiting.token()).begin().one_answer().is_error(503, "not_ready");
}

#[test]
fn a_repeat_with_the_same_id_joins() {
    let agent = Agent::start();
    let request = sh("echo once; read line; echo $line");
    let mut first = agent.attach_as(&request, &[("x-request-id", "again")]);
    let id = first.started();
    first.until("once");
    first.vanish(true); // it lives for a while without a caller
    let mut second = agent.attach_as(&request, &[("x-request-id", "again")]);
    assert_eq!(second.started(), id);
    second.until("once");
    second.types(b"twice\n");
    let heard = second.rest();
    assert_eq!((heard.text().as_str(), heard.rc()), ("twice\n", 0));
    let heard = agent.attach_as(&sh("another"), &[("x-request-id", "again")]).rest();
    assert_eq!(heard.result()["error"], "conflict");
}

#[test]
fn a_peer_that_does_not_answer_a_ping_is_dropped_and_one_that_does_is_not() {
    let agent = Agent::with(&["--ping-interval", "1000"]);
    let (quiet, alive) = (processes::unique_seconds(), processes::unique_seconds());
    let mut silent = agent.attach(&json!({"argv": ["sleep", quiet]}));
    silent.started();
    let mut client = agent.attach(&json!({"argv": ["sleep", alive]}));
    client.started();
    appears(&["sleep", &quiet]);
    let stream = client.socket.get_ref().try_clone().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    // reads, and so answers, for as long as the other is silent
    wait_for("the silent one's call to end", PATIENCE, || {
        drop(client.socket.read());
        processes::with_args(&["sleep", &quiet]).is_empty()
    });
    for _ in 0..30 {
        drop(client.socket.read());
    }
    assert_eq!(processes::with_args(&["sleep", &alive]).len(), 1, "the other's goes on");
    drop(silent);
}

#[test]
fn an_attached_client_keeps_its_place_among_the_connections() {
    let agent = Agent::with(&["--max-connections", "2"]);
    let mut clients: Vec<Attached> = (0..2).map(|_| agent.attach(&json!({"argv": ["sleep", "600"]}))).collect();
    for client in &mut clients {
        client.started();
    }
    agent.authorized("GET", "/whoami").send().is_error(429, "queue_full");
    clients.pop().unwrap().vanish(true);
    wait_for("a place to be free", PATIENCE, || agent.authorized("GET", "/whoami").send().status == 200);
}

#[test]
fn an_agent_that_stops_tells_its_clients() {
    let agent = Agent::with(&["--drain", "1"]);
    let seconds = processes::unique_seconds();
    let mut running = agent.attach(&sh(&format!("echo up; sleep {seconds}")));
    running.until("up");
    let mut terminal = agent.attach(&in_terminal("echo up; sleep 600"));
    terminal.until("up");
    let job = json!({"argv": ["sleep", "600"], "detach": true});
    let job = agent.begin_post("/exec", &job, &[]).answer().json["process_id"].as_str().unwrap().to_owned();
    let mut watcher = agent.attach_to(&job, None);
    watcher.started();
    let mut undecided = agent.websocket("/exec/attach", &[]);
    let begun = Instant::now();
    agent.terminate();
    for (what, client) in [
        ("running", &mut running),
        ("terminal", &mut terminal),
        ("watcher", &mut watcher),
        ("undecided", &mut undecided),
    ] {
        let heard = client.rest();
        assert_eq!(heard.result()["error"], "agent_stopping", "{what}: {heard:?}");
        assert_eq!(heard.close, Some(u16::from(CloseCode::Away)), "{what}");
    }
    agent.stop();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    all_gone(&["sleep", &seconds]);
}

#[test]
fn an_agent_that_stops_does_not_wait_for_a_client_that_does_not_listen() {
    let agent = Agent::with(&["--drain", "0"]);
    let mut client = agent.attach(&sh("cat /dev/zero"));
    client.started();
    std::thread::sleep(Duration::from_millis(300)); // until nothing more goes through
    let begun = Instant::now();
    agent.stop();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
