//! `POST /exec` against the real agent: what runs, what comes back, and what is left afterwards.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{Agent, Answer, processes, wait_for};

/// A script for `sh`, run by `agent`.
fn sh(agent: &Agent, script: &str) -> Value {
    with(agent, &json!({ "script": BASE64_STANDARD.encode(script) }))
}

fn with(agent: &Agent, body: &Value) -> Value {
    let answer = agent.post("/exec", body);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

fn refused(agent: &Agent, body: &Value, status: u16, error: &str) -> Value {
    let answer = agent.post("/exec", body);
    assert_eq!((answer.status, answer.json["error"].as_str()), (status, Some(error)), "{:?}", answer.json);
    answer.json
}

#[test]
fn the_oldest_client_gets_what_it_reads() {
    let agent = Agent::start();
    let result =
        with(&agent, &json!({ "script": BASE64_STANDARD.encode("echo ok; echo err >&2; exit 7"), "timeout_sec": 5 }));
    assert_eq!((&result["rc"], &result["stdout"], &result["stderr"]), (&json!(7), &json!("ok\n"), &json!("err\n")));
    assert_eq!(
        (&result["timed_out"], &result["truncated"], &result["signal"]),
        (&json!(false), &json!(false), &Value::Null)
    );
    assert_eq!((&result["stdout_bytes"], &result["stderr_bytes"]), (&json!(3), &json!(4)));
    assert!(result["process_id"].as_str().unwrap().starts_with("p-"));
    assert!(result["duration_ms"].is_u64());
    assert!(result.get("stdout_b64").is_none());
}

#[test]
fn argv_reaches_the_program_byte_for_byte() {
    let agent = Agent::start();
    let awkward =
        ["", " ", "a b", "\"", "'", "\\", "%PATH%", "$HOME", "`id`", "*", "é漢🙂", "-n", "new\nline", "&", "|", ";"];
    let mut argv = vec!["printf", "[%s]"];
    argv.extend(awkward);
    let result = with(&agent, &json!({ "argv": argv }));
    let expected: String = format!("[{}]", awkward.join("]["));
    assert_eq!(result["stdout"], json!(expected));
}

#[test]
fn a_background_child_does_not_hold_the_answer_and_lives_on() {
    let agent = Agent::start();
    let tag = processes::unique_seconds();
    let begun = Instant::now();
    let result = sh(&agent, &format!("sleep {tag} & echo STARTED"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((&result["rc"], &result["stdout"]), (&json!(0), &json!("STARTED\n")));
    let begun = Instant::now();
    let result = sh(&agent, &format!("(sleep {tag} >&2 &) ; exit 3"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(result["rc"], json!(3));
    // the shell may have ended before the last one it forked had become its program
    wait_for("what a normal exit leaves behind", Duration::from_secs(10), || {
        processes::with_args(&["sleep", &tag]).len() == 2
    });
    let left = processes::with_args(&["sleep", &tag]);

    // another call's time-out takes nobody else with it, nor does the agent's end
    let result = with(&agent, &json!({ "script": BASE64_STANDARD.encode("sleep 30"), "timeout_sec": 0.2 }));
    assert_eq!(result["timed_out"], json!(true));
    agent.stop();
    assert_eq!(processes::with_args(&["sleep", &tag]).len(), 2);
    processes::kill(&left);
}

#[test]
fn a_left_behind_child_may_go_on_writing_also_after_the_agent() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // far more than a pipe holds, in steps that outlast the call and the agent
    let script = format!(
        "(trap 'echo broken >{0}; exit' PIPE; sleep 0.3; head -c 300000 /dev/zero; sleep 1; head -c 300000 /dev/zero && echo whole >{0}) & echo hi",
        done.display()
    );
    let result = sh(&agent, &script);
    assert_eq!(result["stdout"], json!("hi\n"));
    agent.stop();
    wait_for("the child to finish", Duration::from_secs(20), || done.exists());
    wait_for("its word", Duration::from_secs(5), || !std::fs::read_to_string(&done).unwrap().is_empty());
    assert_eq!(std::fs::read_to_string(&done).unwrap(), "whole\n");
}

#[test]
fn a_hundred_left_behind_children_leak_nothing_in_the_agent() {
    let agent = Agent::start();
    let tag = processes::unique_seconds();
    sh(&agent, &format!("sleep {tag} &"));
    let before = agent.open_files();
    for _ in 0..100 {
        sh(&agent, &format!("sleep {tag} & echo x"));
    }
    wait_for("files to be closed again", Duration::from_secs(5), || agent.open_files() <= before + 2);
    assert!(agent.threads() < 64, "{}", agent.threads());
    processes::kill(&processes::with_args(&["sleep", &tag]));
}

fn timeout_leaves_nobody(agent: &Agent) {
    let tag = processes::unique_seconds();
    for script in [
        format!("echo before; sh -c 'setsid sleep {tag} & sleep {tag} & wait'"),
        format!("echo before; (setsid sh -c 'sleep {tag} & (sleep {tag} &) ; sleep {tag}' &) ; sleep {tag}"),
        format!("echo before; env -i setsid /bin/sleep {tag} & sleep {tag}"),
        // proven by descent alone, it outlives its parent for as long as it ignores TERM
        format!(
            "echo before; env -i setsid /bin/sh -c \"trap '' TERM; sleep {tag}; sleep {tag}; :\" & sleep {tag}; wait"
        ),
        format!(
            "echo before; trap '' TERM HUP INT; sh -c \"trap '' TERM; sleep {tag} & sleep {tag}\" & sleep {tag} & kill -STOP $!; wait"
        ),
    ] {
        let begun = Instant::now();
        let result = with(agent, &json!({ "script": BASE64_STANDARD.encode(&script), "timeout_sec": 1 }));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?} for {script}", begun.elapsed());
        assert_eq!((&result["rc"], &result["timed_out"]), (&json!(124), &json!(true)));
        assert_eq!(result["stdout"], json!("before\n"), "what came before is kept");
        assert_eq!(result["survivors"], json!([]));
        assert_eq!(
            processes::with_args(&["sleep", &tag]).len() + processes::with_args(&["/bin/sleep", &tag]).len(),
            0,
            "{script}"
        );
    }
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    timeout_leaves_nobody(&Agent::start());
}

#[test]
fn a_timeout_ends_the_whole_tree_without_cgroups_too() {
    timeout_leaves_nobody(&Agent::with(&["--no-cgroups"]));
}

#[test]
fn a_process_that_was_moved_out_of_the_calls_cgroup_ends_too() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let Some(top) = mounts.lines().find(|line| line.starts_with("cgroup2 ")).and_then(|line| line.split(' ').nth(1))
    else {
        eprintln!("skipped: no cgroups of version 2 here");
        return;
    };
    let elsewhere = format!("{top}/podlink-test-{}", std::process::id());
    if std::fs::create_dir(&elsewhere).is_err() {
        eprintln!("skipped: cgroups cannot be made here");
        return;
    }
    let agent = Agent::start();
    let tag = processes::unique_seconds();
    let script = format!("sh -c 'echo 0 >{elsewhere}/cgroup.procs; exec setsid sleep {tag}' & sleep {tag}");
    let result = with(&agent, &json!({ "script": BASE64_STANDARD.encode(script), "timeout_sec": 1 }));
    assert_eq!((&result["rc"], &result["survivors"]), (&json!(124), &json!([])));
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
    // it stays for as long as the dead are not reaped, which is the business of this machine's first process
    drop(std::fs::remove_dir(&elsewhere));
}

#[test]
fn a_script_that_removes_the_folder_of_runs_harms_no_later_call() {
    let agent = Agent::start();
    sh(&agent, "rm -rf \"$(dirname \"$(dirname \"$0\")\")\"");
    assert_eq!(sh(&agent, "echo well")["stdout"], json!("well\n"));
}

#[test]
fn stdin_is_empty_unless_given() {
    let agent = Agent::start();
    for script in ["cat", "read x; echo \"[$x]\"", "sort", "grep x; true"] {
        let begun = Instant::now();
        let result = sh(&agent, script);
        assert_eq!(result["rc"], json!(0), "{script}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{script}");
    }
    let input = BASE64_STANDARD.encode(b"b\na\n\xff");
    let result = with(&agent, &json!({ "script": BASE64_STANDARD.encode("cat"), "stdin": input }));
    assert_eq!(result["stdout_b64"], json!(input));
    let large = "x".repeat(100_000);
    let result = with(
        &agent,
        &json!({ "script": BASE64_STANDARD.encode("echo first; wc -c"), "stdin": BASE64_STANDARD.encode(&large) }),
    );
    assert_eq!(result["stdout"].as_str().unwrap().split_whitespace().collect::<Vec<_>>(), ["first", "100000"]);
}

#[test]
fn much_output_deadlocks_nothing() {
    let agent = Agent::start();
    let ten_mb = 10_000_000;
    let result = sh(&agent, "head -c 10000000 /dev/zero | tr '\\0' a; head -c 10000000 /dev/zero | tr '\\0' b >&2");
    assert_eq!((&result["stdout_bytes"], &result["stderr_bytes"]), (&json!(ten_mb), &json!(ten_mb)));
    assert_eq!(result["truncated"], json!(true));
    assert_eq!(result["stdout"].as_str().unwrap().len(), 8 * 1024 * 1024);
    let result = with(
        &agent,
        &json!({ "script": BASE64_STANDARD.encode("head -c 10000000 /dev/zero | tr '\\0' a"), "max_output_bytes": 16_000_000 }),
    );
    assert_eq!((&result["truncated"], result["stdout"].as_str().unwrap().len()), (&json!(false), ten_mb));
    let result = sh(
        &agent,
        "for i in 1 2 3 4 5 6 7 8; do head -c 70000 /dev/zero | tr '\\0' o; head -c 70000 /dev/zero | tr '\\0' e >&2; done",
    );
    assert_eq!(
        (result["stdout"].as_str().unwrap(), result["stderr"].as_str().unwrap()),
        (&*"o".repeat(560_000), &*"e".repeat(560_000))
    );
}

#[test]
fn endless_output_is_cut_and_counted_in_bounded_memory() {
    let agent = Agent::start();
    let result = std::thread::scope(|scope| {
        let call = scope.spawn(|| with(&agent, &json!({ "script": BASE64_STANDARD.encode("yes"), "timeout_sec": 2 })));
        while !call.is_finished() {
            let begun = Instant::now();
            assert_eq!(agent.get("/health").status, 200);
            assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        }
        call.join().unwrap()
    });
    assert_eq!((&result["timed_out"], &result["truncated"], &result["rc"]), (&json!(true), &json!(true), &json!(124)));
    assert!(result["stdout_bytes"].as_u64().unwrap() > 8 * 1024 * 1024, "{}", result["stdout_bytes"]);
    let result = sh(&agent, "head -c 300000000 /dev/zero | tr '\\0' a");
    assert_eq!(
        (&result["stdout_bytes"], &result["truncated"], &result["rc"]),
        (&json!(300_000_000), &json!(true), &json!(0))
    );
    assert!(agent.peak_memory_kib() < 150 * 1024, "{} KiB", agent.peak_memory_kib());
}

#[test]
fn rc_is_always_the_programs_own() {
    let agent = Agent::start();
    for code in [0, 1, 7, 77, 124, 125, 126, 127, 128, 255] {
        assert_eq!(sh(&agent, &format!("exit {code}"))["rc"], json!(code));
    }
    for (script, signal) in [("kill -9 $$", 9), ("kill -SEGV $$", 11), ("kill -TERM $$", 15)] {
        let result = sh(&agent, script);
        assert_eq!((&result["rc"], &result["signal"]), (&json!(128 + signal), &json!(signal)));
    }
    for _ in 0..1000 {
        assert_eq!(with(&agent, &json!({ "argv": ["true"] }))["rc"], json!(0));
    }
}

#[test]
fn what_cannot_be_started_is_an_error_and_no_rc() {
    let agent = Agent::start();
    let missing = refused(&agent, &json!({ "argv": ["/no/such/program"] }), 422, "spawn_failed");
    assert!(missing["detail"].as_str().unwrap().contains("/no/such/program"), "{missing}");
    let cwd = refused(&agent, &json!({ "argv": ["true"], "cwd": "/no/such/folder" }), 422, "spawn_failed");
    assert!(cwd["detail"].as_str().unwrap().contains("/no/such/folder"), "{cwd}");
    refused(&agent, &json!({ "argv": ["true"], "cwd": "/etc/passwd" }), 422, "spawn_failed");
    refused(&agent, &json!({ "argv": ["/etc/passwd"] }), 422, "spawn_failed");
    refused(&agent, &json!({ "script": "", "shell": "cmd" }), 422, "spawn_failed");
    refused(&agent, &json!({ "script": "", "shell": "fish" }), 400, "bad_request");
    refused(&agent, &json!(["ZWNobyBhcnI="]), 400, "bad_request");
    let odd = agent.delete("/exec/%ff");
    assert_eq!((odd.status, odd.json["error"].as_str()), (400, Some("bad_request")));
}

#[test]
fn scripts_of_any_size_go_through_a_file() {
    let agent = Agent::start();
    for size in [0, 3_000, 8_191, 33_000, 500_000, 1_600_000] {
        let script = format!("{}\ncksum <\"$0\"\n", "# padding é\n".repeat(size / 13));
        let result = sh(&agent, &script);
        let ours = std::process::Command::new("sh")
            .args(["-c", "cksum"])
            .stdin({
                let mut file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut file, script.as_bytes()).unwrap();
                std::io::Seek::rewind(&mut file).unwrap();
                file
            })
            .output()
            .unwrap();
        assert_eq!(result["stdout"].as_str().unwrap().as_bytes(), ours.stdout, "{size}");
    }
}

#[test]
fn marks_before_a_script_do_no_harm() {
    let agent = Agent::start();
    for script in [&b"\xef\xbb\xbf#!/bin/sh\necho \xe2\x9c\x93"[..], b"\xff\xfee\0c\0h\0o\0 \0\x13\x27"] {
        let result = with(&agent, &json!({ "script": BASE64_STANDARD.encode(script) }));
        assert_eq!((&result["stdout"], &result["stderr"]), (&json!("✓\n"), &json!("")));
    }
}

#[test]
fn characters_cut_by_reads_or_caps_stay_whole() {
    let agent = Agent::start();
    assert_eq!(sh(&agent, r"printf '\342\202'; sleep 0.3; printf '\254'")["stdout"], json!("€"));
    let result = with(
        &agent,
        &json!({ "script": BASE64_STANDARD.encode(r"for i in 1 2 3 4 5; do printf '\342\202\254'; done"), "max_output_bytes": 10 }),
    );
    assert_eq!(
        (&result["stdout"], &result["truncated"], &result["stdout_bytes"]),
        (&json!("€€€"), &json!(true), &json!(15))
    );
    assert!(result.get("stdout_b64").is_none());
    let cut = sh(&agent, r"printf '\360\237\231'");
    assert_eq!(cut["stdout_b64"], json!(BASE64_STANDARD.encode(b"\xf0\x9f\x99")));
    let text = "漢".repeat(350_000);
    let result =
        with(&agent, &json!({ "script": BASE64_STANDARD.encode("cat"), "stdin": BASE64_STANDARD.encode(&text) }));
    assert_eq!(result["stdout"].as_str().unwrap(), text);
}

#[test]
fn the_environment_is_the_accounts_own_and_each_calls_alone() {
    let agent = Agent::with_env(&[("FROM_OUTSIDE", "yes")]);
    let result = with(
        &agent,
        &json!({ "script": BASE64_STANDARD.encode("echo \"$FROM_OUTSIDE $MINE\""), "env": { "MINE": "a $b \"c\" é" } }),
    );
    assert_eq!(result["stdout"], json!("yes a $b \"c\" é\n"));
    assert_eq!(sh(&agent, "echo \"[$MINE]\"")["stdout"], json!("[]\n"));
    let result = with(&agent, &json!({ "argv": ["/usr/bin/env"], "env_clear": true, "env": { "ONLY": "1" } }));
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert!(lines.contains(&"ONLY=1") && !lines.iter().any(|line| line.starts_with("FROM_OUTSIDE")), "{lines:?}");
    let all = sh(&agent, "env; cat /proc/$PPID/environ; cat /proc/$PPID/cmdline");
    assert!(!all["stdout"].as_str().unwrap().contains(agent.token()));
}

#[test]
fn a_working_directory_is_taken() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b é");
    std::fs::create_dir(&path).unwrap();
    let result = with(&agent, &json!({ "argv": ["pwd"], "cwd": path }));
    assert_eq!(result["stdout"], json!(format!("{}\n", path.display())));
}

#[test]
fn nonsense_timeouts_are_told_the_cap() {
    let agent = Agent::with(&["--exec-timeout-cap", "5"]);
    for timeout in [json!(0), json!(-1), json!("60"), json!(1e18), json!(6), json!([1])] {
        let body = refused(&agent, &json!({ "argv": ["true"], "timeout_sec": timeout }), 400, "bad_request");
        assert!(body["hint"].as_str().unwrap().contains("cap of 5"), "{body}");
    }
    for timeout in [json!(0.5), json!(5), Value::Null] {
        with(&agent, &json!({ "argv": ["true"], "timeout_sec": timeout }));
    }
}

#[test]
fn health_never_waits_behind_calls_and_the_queue_is_bounded() {
    let agent = Agent::with(&["--exec-slots", "2", "--exec-queue", "1", "--exec-queue-wait", "1000"]);
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| with(&agent, &json!({ "script": BASE64_STANDARD.encode("sleep 2.5; echo slow") }))))
            .collect();
        wait_for("both slots to be taken", Duration::from_secs(5), || processes::children_of(agent.pid()).len() >= 2);
        // of two more, whichever comes first waits in vain, and the other finds no place
        let more: Vec<_> = (0..2).map(|_| scope.spawn(|| agent.post("/exec", &json!({ "argv": ["true"] })))).collect();
        let mut waits: Vec<Duration> = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            assert_eq!(agent.get("/health").status, 200);
            waits.push(begun.elapsed());
        }
        // the machine itself may hold up one of them; a slot would hold up all, for seconds
        waits.sort_unstable();
        assert!(waits[17] < Duration::from_millis(100) && waits[19] < Duration::from_secs(1), "{waits:?}");
        let more: Vec<Answer> = more.into_iter().map(|call| call.join().unwrap()).collect();
        for refused in &more {
            assert_eq!((refused.status, refused.json["error"].as_str()), (429, Some("queue_full")));
            assert!(refused.header("retry-after").is_some());
        }
        for reason in ["every place", "no slot became free"] {
            let said = more.iter().filter(|refused| refused.json["detail"].as_str().unwrap().contains(reason)).count();
            assert_eq!(said, 1, "{reason}: {more:?}");
        }
        for call in slow {
            assert_eq!(call.join().unwrap()["stdout"], json!("slow\n"));
        }
    });
    assert_eq!(sh(&agent, "echo free")["stdout"], json!("free\n"));
}

#[test]
fn a_repeated_request_id_runs_once() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("counter");
    let body =
        json!({ "script": BASE64_STANDARD.encode(format!("echo x >>{}; sleep 0.5; echo once", counter.display())) });
    let id = [("x-request-id", "repeat-1")];
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..5).map(|_| scope.spawn(|| agent.post_with("/exec", &body, &id))).collect();
        let answers: Vec<Answer> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.json == answers[0].json));
        assert_eq!(answers[0].header("x-request-id"), Some("repeat-1"));
    });
    let late = agent.post_with("/exec", &body, &id);
    assert_eq!(late.json["stdout"], json!("once\n"));
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "x\n");

    let other = agent.post_with("/exec", &json!({ "argv": ["true"] }), &id);
    assert_eq!((other.status, other.json["error"].as_str()), (409, Some("conflict")));
    let elsewhere = agent.post_with("/exec", &body, &[("x-request-id", "repeat-2"), ("podlink-if-agent", "another")]);
    assert_eq!((elsewhere.status, elsewhere.json["error"].as_str()), (409, Some("conflict")));
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "x\n");
}

#[test]
fn a_call_without_an_id_dies_with_its_caller() {
    let agent = Agent::with(&["--exec-slots", "1"]); // a slot that leaks is missed at once
    let tag = processes::unique_seconds();
    for reset in [false, true] {
        let caller = agent.begin_post("/exec", &json!({ "argv": ["sleep", tag] }), &[]);
        wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
        caller.hang_up(reset);
        wait_for("the program to be gone", Duration::from_secs(3), || {
            processes::with_args(&["sleep", &tag]).is_empty()
        });
    }
    assert_eq!(sh(&agent, "echo next")["rc"], json!(0));
}

#[test]
fn a_call_with_an_id_waits_for_its_caller_to_come_back() {
    let agent = Agent::with(&["--orphan-grace", "2000"]);
    let tag = processes::unique_seconds();
    let body = json!({ "script": BASE64_STANDARD.encode("sleep 1; echo kept") });
    let id = [("x-request-id", "comes-back")];
    agent.begin_post("/exec", &body, &id).hang_up(false);
    let answer = agent.post_with("/exec", &body, &id);
    assert_eq!(answer.json["stdout"], json!("kept\n"));

    let caller = agent.begin_post("/exec", &json!({ "argv": ["sleep", tag] }), &[("x-request-id", "stays-away")]);
    wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
    caller.hang_up(false);
    let begun = Instant::now();
    wait_for("the program to be gone", Duration::from_secs(6), || processes::with_args(&["sleep", &tag]).is_empty());
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_caller_that_comes_back_and_leaves_again_has_its_whole_time() {
    let agent = Agent::with(&["--orphan-grace", "4000"]);
    let tag = processes::unique_seconds();
    let body = json!({ "argv": ["sleep", tag] });
    let id = [("x-request-id", "to-and-fro")];
    let first = agent.begin_post("/exec", &body, &id);
    wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
    first.hang_up(false);
    let second = agent.begin_post("/exec", &body, &id);
    // time enough to be heard, and less than the first one's timer has left
    std::thread::sleep(Duration::from_millis(1500));
    second.hang_up(false);
    let left = Instant::now();
    wait_for("the program to be gone", Duration::from_secs(9), || processes::with_args(&["sleep", &tag]).is_empty());
    assert!(left.elapsed() > Duration::from_secs(3), "{:?}", left.elapsed());
}

#[test]
fn a_call_is_cancelled_by_its_id() {
    let agent = Agent::start();
    let tag = processes::unique_seconds();
    let body = json!({ "script": BASE64_STANDARD.encode(format!("echo so far; sleep {tag}")) });
    std::thread::scope(|scope| {
        let call = scope.spawn(|| agent.post_with("/exec", &body, &[("x-request-id", "to-cancel")]));
        wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
        assert_eq!(agent.delete("/exec/to-cancel").status, 204);
        assert!(processes::with_args(&["sleep", &tag]).is_empty(), "it is gone when the answer comes");
        let answer = call.join().unwrap();
        assert_eq!((answer.status, answer.json["error"].as_str()), (409, Some("cancelled")));
        assert_eq!((&answer.json["started"], &answer.json["stdout"]), (&json!(true), &json!("so far\n")));
    });
    assert_eq!(agent.delete("/exec/to-cancel").status, 204, "once more is as good");
    assert_eq!(agent.delete("/exec/never-seen").status, 404);
}

#[test]
fn stopping_gives_each_call_its_own_answer() {
    let agent = Agent::with(&["--exec-slots", "1", "--drain", "1"]);
    let tag = processes::unique_seconds();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            agent.post("/exec", &json!({ "script": BASE64_STANDARD.encode(format!("echo so far; sleep {tag}")) }))
        });
        wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
        let queued = scope.spawn(|| agent.post("/exec", &json!({ "argv": ["echo", "never"] })));
        wait_for("both calls to be there", Duration::from_secs(5), || agent.connections() >= 2);
        let begun = Instant::now();
        agent.terminate();
        let queued = queued.join().unwrap();
        assert_eq!((queued.status, queued.json["error"].as_str()), (503, Some("agent_stopping")));
        assert_eq!(queued.json["started"], json!(false));
        let running = running.join().unwrap();
        assert_eq!((running.status, running.json["error"].as_str()), (503, Some("agent_stopping")));
        assert_eq!((&running.json["started"], &running.json["stdout"]), (&json!(true), &json!("so far\n")));
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    });
    assert!(processes::with_args(&["sleep", &tag]).is_empty());
    agent.stop();
}

#[test]
fn files_of_runs_are_private_and_gone_afterwards() {
    use std::os::unix::fs::PermissionsExt as _;
    let agent = Agent::start();
    let body = json!({
        "script": BASE64_STANDARD.encode("d=$(dirname \"$0\"); stat -c '%a %n' \"$d\" \"$0\" \"$d\"/*; echo; dirname \"$d\""),
        "stdin": BASE64_STANDARD.encode("secret")
    });
    let result = with(&agent, &body);
    let text = result["stdout"].as_str().unwrap();
    let (listed, runs) = text.split_once("\n\n").unwrap();
    for line in listed.lines() {
        assert!(line.starts_with("600 ") || line.starts_with("700 "), "{line}");
    }
    let runs = std::path::Path::new(runs.trim());
    assert_eq!(std::fs::metadata(runs).unwrap().permissions().mode() & 0o7777, 0o700);
    let names = |folder: &std::path::Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(runs), ["lock"], "nothing of the run is left");
    agent.stop();
    assert!(!runs.exists());
}

#[test]
fn what_a_killed_agent_left_is_swept_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let runs_arg = runs.to_str().unwrap().to_owned();
    let agent = Agent::with(&["--runs-dir", &runs_arg]);
    let tag = processes::unique_seconds();
    let caller = agent.begin_post("/exec", &json!({ "argv": ["sleep", tag], "stdin": "c2VjcmV0" }), &[]);
    wait_for("the program to run", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).len() == 1);
    agent.kill();
    drop(caller);
    assert!(std::fs::read_dir(&runs).unwrap().count() > 0);
    let next = Agent::with(&["--runs-dir", &runs_arg]);
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 1, "its own folder alone");
    assert!(processes::with_args(&["sleep", &tag]).is_empty(), "a call that nobody waits for any more is ended");
    next.stop();
}

#[test]
fn fifty_slow_calls_and_a_thousand_looks_at_health() {
    let agent = Agent::with(&["--exec-slots", "64"]);
    let look = |count: usize| {
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let begun = Instant::now();
                assert_eq!(agent.get("/health").status, 200);
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[count * 99 / 100]
    };
    let idle = look(1000);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| with(&agent, &json!({ "argv": ["sleep", "8"] })));
        }
        wait_for("fifty programs to run", Duration::from_secs(8), || processes::children_of(agent.pid()).len() >= 50);
        let busy = look(1000);
        assert!(processes::children_of(agent.pid()).len() >= 50, "they still run");
        println!("measured: p99 of /health: idle {idle:?}, with 50 slow calls running {busy:?}");
    });
}
