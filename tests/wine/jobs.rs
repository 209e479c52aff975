//! Detached calls on Windows, by the agent's ways and by the host's commands; sessions.

use serde_json::{Value, json};

use crate::support::{
    WineAgent,
    cli::Run,
    wait_for,
    wine_calls::{PATIENCE, cmd},
};

/// Starts a job by the host's tool and returns its id.
fn start(agent: &WineAgent, args: &[&str]) -> String {
    let run = agent.pod(&[&["exec", "--detach"], args].concat()).run().exits(0);
    let id = run.stdout.trim_end().to_owned();
    assert!(id.starts_with("p-") && !id.contains('\n'), "{run:?}");
    id
}

fn has_row(run: &Run, words: &[&str]) -> bool {
    run.stdout.lines().any(|line| words.iter().all(|word| line.split_whitespace().any(|part| part == *word)))
}

#[test]
fn a_job_outlives_its_caller_and_is_found_again() {
    let Some(agent) = WineAgent::start() else { return };
    let (go, go_w) = agent.wine().file("go");
    let probe = agent.wine().probe();
    let script = format!("@echo out\r\n@echo err 1>&2\r\n@\"{probe}\" wait {go_w}\r\n@echo more\r\n@exit 3");
    let id = start(&agent, &["--shell", "cmd", &script]);
    let short = &id[..8];
    wait_for("its first lines", PATIENCE, || {
        let run = agent.pod(&["logs", short]).run().exits(0);
        run.stdout.trim_end() == "out" && run.stderr.trim_end() == "err"
    });
    let list = agent.pod(&["ps"]).run().exits(0);
    assert!(has_row(&list, &[&id, "running", "detached"]), "{}", list.stdout);
    agent.pod(&["wait", "--timeout", "0.3", &id]).run().exits(10);
    // who attaches sees what comes, and ends with it
    let attached = std::thread::scope(|scope| {
        let attached = scope.spawn(|| agent.pod(&["attach", &id]).run());
        wait_for("it to be attached", PATIENCE, || agent.log().contains("/attach"));
        std::fs::write(&go, "").unwrap();
        attached.join().unwrap()
    });
    assert_eq!(attached.code, Some(3), "{attached:?}");
    assert!(attached.stdout.trim_end().ends_with("more"), "{attached:?}");
    let run = agent.pod(&["wait", &id]).run().exits(3);
    assert_eq!(run.stdout, format!("{id} 3\n"));
    assert!(has_row(&agent.pod(&["ps", "--all"]).run().exits(0), &[&id, "exited", "3"]));
    let run = agent.pod(&["logs", &id]).run().exits(0);
    assert_eq!(run.stdout.split_whitespace().collect::<Vec<_>>(), ["out", "more"]);
}

#[test]
fn a_kill_ends_the_tree_and_tells_how_many() {
    let Some(agent) = WineAgent::start() else { return };
    let id = start(&agent, &["--shell", "cmd", "cmd /c \"ping -n 610 127.0.0.1 >nul\""]);
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 610").is_empty());
    let run = agent.pod(&["kill", &id]).run().exits(0);
    assert!(run.stdout.contains('3') || run.stderr.contains('3'), "three processes: {run:?}");
    agent.wait_for_processes("-n 610", 0);

    // a signal to the program itself: there are those that end it, and no others
    let id = agent.spawn(&cmd("ping -n 611 127.0.0.1"));
    let path = format!("/processes/{id}/signal");
    for wrong in ["USR1", "HUP", "NONE", "99"] {
        let answer = agent.post(&path, &json!({ "signal": wrong }));
        answer.is_error(400, "bad_request");
    }
    assert_eq!(agent.post(&path, &json!({ "signal": "KILL" })).json["signalled"], 1);
    assert_eq!(agent.ended(&id)["result"]["rc"], json!(137));
    agent.post(&path, &json!({ "signal": "KILL" })).is_error(409, "conflict");
    let left = agent.wait_for_processes("-n 611", 1);
    crate::support::processes::kill(&left); // it was left behind, and lives on
    let id = agent.spawn(&cmd("ping -n 612 127.0.0.1"));
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 612").is_empty());
    let answer = agent.post(&format!("/processes/{id}/signal"), &json!({ "signal": "TERM", "tree": true }));
    assert!(answer.json["signalled"].as_u64().unwrap() >= 2, "{answer:?}");
    agent.ended(&id);
    agent.wait_for_processes("-n 612", 0);
}

#[test]
fn stdin_is_fed_piece_by_piece_and_closed() {
    let Some(agent) = WineAgent::start() else { return };
    let mut body = agent.probe(&["cat"]);
    body["open_stdin"] = json!(true);
    let id = agent.spawn(&body);
    let bytes: Vec<u8> = (0..700_000_u32).map(|n| u8::try_from(n % 249).unwrap()).collect();
    let mut stream = agent.output(&id);
    let (first, rest) = bytes.split_at(5);
    assert_eq!(agent.write_stdin(&id, "", first).json["accepted_bytes"], json!(5));
    assert_eq!(stream.next_word(), Some(crate::support::Item::Stdout(first.to_vec())), "it comes at once");
    for piece in rest.chunks(200_000) {
        assert_eq!(agent.write_stdin(&id, "", piece).json["accepted_bytes"], json!(piece.len()));
    }
    assert_eq!(agent.info(&id)["state"], "running");
    assert_eq!(agent.delete(&format!("/processes/{id}/stdin")).status, 204);
    let whole = stream.whole();
    assert_eq!((whole.stdout == rest, &whole.end["rc"]), (true, &json!(0)));
    agent.write_stdin(&id, "", b"late").is_error(409, "conflict");
}

/// A session as `GET /sessions` shows it; null where nothing runs or waits in it.
fn look(agent: &WineAgent) -> Value {
    agent.get("/sessions").json["sessions"].as_array().unwrap().first().cloned().unwrap_or_default()
}

#[test]
fn calls_of_a_session_run_in_order_and_can_be_cancelled() {
    let Some(agent) = WineAgent::start() else { return };
    let (go, go_w) = agent.wine().file("go");
    let (order, order_w) = agent.wine().file("order");
    let of = |mut body: Value| {
        body["session"] = json!("line");
        body
    };
    let wait_for_queue = |count: usize| {
        let mut info = Value::Null;
        wait_for("the queue", PATIENCE, || {
            info = look(&agent);
            info["running"]["state"] == "running" && info["queued"].as_array().is_some_and(|calls| calls.len() == count)
        });
        info
    };
    let held = agent.begin("POST", "/exec", &of(agent.probe(&["wait", &go_w])), &[]);
    wait_for_queue(0);
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let body = of(cmd(&format!(">>\"{order_w}\" echo {n}")));
            let call = agent.begin("POST", "/exec", &body, &[]);
            wait_for_queue(n + 1);
            call
        })
        .collect();
    let queued = wait_for_queue(8)["queued"].as_array().unwrap().clone();
    let ended = agent.delete(&format!("/processes/{}", queued[3]["process_id"].as_str().unwrap()));
    assert_eq!((ended.status, &ended.json["killed"]), (200, &json!(0)));
    // a call of none does not wait
    assert_eq!(agent.exec(&cmd("exit 4"))["rc"], json!(4));
    assert!(!order.exists());
    std::fs::write(go, "").unwrap();
    assert_eq!(held.answer().json["rc"], json!(0));
    for (n, call) in calls.into_iter().enumerate() {
        let answer = call.answer();
        if n == 3 {
            assert_eq!(answer.is_error(409, "cancelled")["started"], json!(false));
        } else {
            assert_eq!((answer.status, &answer.json["rc"]), (200, &json!(0)), "{answer:?}");
        }
    }
    let written = std::fs::read_to_string(order).unwrap();
    assert_eq!(written.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "4", "5", "6", "7"]);

    // one that runs is cancelled, and the next has its turn
    let running = agent.begin("POST", "/exec", &of(cmd("echo so far\r\nping -n 613 127.0.0.1 >nul")), &[]);
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 613").is_empty());
    let next = agent.begin("POST", "/exec", &of(cmd("echo next")), &[]);
    let info = wait_for_queue(1);
    let ended = agent.delete(&format!("/processes/{}", info["running"]["process_id"].as_str().unwrap()));
    assert!(ended.json["killed"].as_u64().unwrap() >= 2, "{ended:?}");
    let answer = running.answer();
    let body = answer.is_error(409, "cancelled");
    assert_eq!((&body["started"], body["stdout"].as_str().unwrap().trim_end()), (&json!(true), "so far"));
    assert_eq!(next.answer().json["stdout"].as_str().unwrap().trim_end(), "next");
    agent.wait_for_processes("-n 613", 0);
    // the session as a whole
    let running = agent.begin("POST", "/exec", &of(cmd("ping -n 614 127.0.0.1 >nul")), &[]);
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 614").is_empty());
    let queued = agent.begin("POST", "/exec", &of(cmd("echo never")), &[]);
    wait_for_queue(1);
    assert_eq!(agent.delete("/sessions/line").json["ended"], json!(2));
    for call in [running, queued] {
        call.answer().is_error(409, "cancelled");
    }
    agent.wait_for_processes("-n 614", 0);
}
