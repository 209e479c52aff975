//! Streamed calls on Windows: as they come, slow readers, callers that vanish, many at once.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    Item, WineAgent, processes, wait_for,
    wine_calls::{PATIENCE, cmd},
};

#[test]
fn output_comes_before_the_program_ends_and_arrives_exactly() {
    let Some(agent) = WineAgent::start() else { return };
    let (go, go_w) = agent.wine().file("go");
    let script = format!("@echo first\r\n@\"{}\" wait {go_w}\r\n@echo second 1>&2\r\n@exit 9", agent.wine().probe());
    let mut stream = agent.stream(&cmd(&script), &[]);
    stream.wait_for_stdout("first");
    std::fs::write(go, "").unwrap();
    let whole = stream.whole();
    assert_eq!((whole.stderr.trim_ascii(), &whole.end["rc"]), (&b"second"[..], &json!(9)));

    let whole = agent.stream(&agent.probe(&["fill", "3000000", "both"]), &[]).whole();
    let period: Vec<u8> = (0..251).collect();
    for bytes in [&whole.stdout, &whole.stderr] {
        assert!(bytes.len() == 3_000_000 && bytes.chunks(251).all(|chunk| *chunk == period[..chunk.len()]));
    }
    // a time-out is told there too
    let mut body = cmd("echo begun\r\nping -n 620 127.0.0.1 >nul");
    body["timeout_sec"] = json!(2);
    let whole = agent.stream(&body, &[]).whole();
    assert_eq!(
        (&whole.end["rc"], &whole.end["timed_out"], &whole.end["survivors"]),
        (&json!(124), &json!(true), &json!([]))
    );
    assert_eq!(whole.stdout.trim_ascii(), b"begun");
    agent.wait_for_processes("-n 620", 0);
}

#[test]
fn a_reader_that_stands_still_stops_the_program_and_loses_nothing() {
    const ALL: usize = 100_000_000;
    let Some(agent) = WineAgent::start() else { return };
    let mut stream = agent.stream(&agent.probe(&["fill", &ALL.to_string(), "out"]), &[]);
    let mut taken = 0_usize;
    let mut take = |bytes: &[u8]| {
        assert!(bytes.iter().enumerate().all(|(n, byte)| usize::from(*byte) == (taken + n) % 251), "after {taken}");
        taken += bytes.len();
        taken
    };
    loop {
        let Some(Item::Stdout(bytes)) = stream.next_word() else { panic!() };
        if take(&bytes) > 1_000_000 {
            break;
        }
    }
    // it is held once what it has written does not change any more
    let id = stream.process_id();
    let written = || agent.info(&id)["output_bytes"].as_u64().unwrap();
    let (mut last, mut since) = (written(), Instant::now());
    wait_for("the program to be held", PATIENCE, || {
        let now = written();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    assert!(last < 40_000_000, "{last} bytes are on the way");
    assert_eq!(agent.get("/health").status, 200);
    assert_eq!(agent.exec(&cmd("exit 5"))["rc"], json!(5));
    loop {
        match stream.next().unwrap() {
            Item::Stdout(bytes) => drop(take(&bytes)),
            Item::End(end) => {
                assert_eq!((&end["rc"], &end["stdout_bytes"]), (&json!(0), &json!(ALL)));
                break;
            }
            Item::Alive => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(take(b""), ALL);
}

#[test]
fn a_caller_that_vanishes_takes_its_call_with_it() {
    let Some(agent) = WineAgent::with(crate::support::WineSetup::new(), &["--orphan-grace", "2500"]) else { return };
    let source = "echo x\r\ncmd /c \"ping -n 621 127.0.0.1 >nul\"";
    for reset in [false, true] {
        // streamed, and buffered
        let mut stream = agent.stream(&cmd(source), &[]);
        stream.wait_for_stdout("x");
        wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 621").is_empty());
        let id = stream.process_id();
        stream.connection.hang_up(reset);
        assert_eq!(agent.ended(&id)["error"]["error"], json!("cancelled"));
        agent.wait_for_processes("-n 621", 0);
        let call = agent.begin("POST", "/exec", &cmd(source), &[]);
        wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 621").is_empty());
        call.hang_up(reset);
        agent.wait_for_processes("-n 621", 0);
    }
    // with an id it has its time to come back
    let call = agent.begin("POST", "/exec", &cmd(source), &[("x-request-id", "comes-back")]);
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 621").is_empty());
    let left = Instant::now();
    call.hang_up(true);
    agent.wait_for_processes("-n 621", 0);
    assert!(left.elapsed() > Duration::from_secs(2), "{:?}", left.elapsed());

    // the host's tool, killed without a word
    let mut child = agent.pod(&["exec", "--shell", "cmd", source]).command();
    let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 621").is_empty());
    processes::kill(&[child.id()]);
    child.wait().unwrap();
    agent.wait_for_processes("-n 621", 0);
    assert_eq!(agent.exec(&cmd("exit 6"))["rc"], json!(6));
}

#[test]
fn twenty_calls_side_by_side_are_each_their_own() {
    let Some(agent) = WineAgent::start() else { return };
    let begun = Instant::now();
    let (quickest, slowest) = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..20_usize)
            .map(|n| {
                let agent = &agent;
                scope.spawn(move || {
                    let run =
                        agent.pod(&["exec", "--shell", "cmd", &format!("@echo {n}\r\n@echo e{n} 1>&2\r\n@exit {n}")]);
                    let run = run.run();
                    assert_eq!((run.code, run.stdout.trim_end()), (i32::try_from(n).ok(), &*n.to_string()), "{run:?}");
                    assert!(run.stderr.contains(&format!("e{n}")), "{run:?}");
                    run.took
                })
            })
            .collect();
        // and looks at its health wait for none of them
        let mut times = Vec::new();
        while calls.iter().any(|call| !call.is_finished()) {
            let asked = Instant::now();
            assert_eq!(agent.get("/health").status, 200);
            times.push(asked.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        let health = times.into_iter().max().unwrap();
        println!("measured: slowest /health of an agent under Wine during 20 calls: {health:?}");
        let took: Vec<Duration> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        (*took.iter().min().unwrap(), *took.iter().max().unwrap())
    });
    println!("measured: 20 calls under Wine at once: {:?}, each {quickest:?} to {slowest:?}", begun.elapsed());
    let id = "repeated";
    // a repeated request runs once
    let (file, file_w) = agent.wine().file("counter");
    let body = cmd(&format!("echo ran>>\"{file_w}\""));
    let calls: Vec<_> = (0..3).map(|_| agent.begin("POST", "/exec", &body, &[("x-request-id", id)])).collect();
    for call in calls {
        assert_eq!(call.answer().json["rc"], json!(0));
    }
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 1);
}
