//! The end of calls: nobody lives who should not, nobody dies who should not, with control groups and without.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Agent, processes, wait_for};

/// What `ps` shows of the process that inherits a call's orphans.
const SUBREAPER: &str = "podlink-call";

/// An agent that holds calls by control groups, where they can be written here, and one that never does.
fn both() -> [(&'static str, Agent); 2] {
    [("as the system lets it", Agent::start()), ("without cgroups", Agent::with(&["--no-cgroups"]))]
}

fn sh(agent: &Agent, script: &str, timeout_sec: f64) -> Value {
    let answer = agent.post("/exec", &json!({ "script": BASE64_STANDARD.encode(script), "timeout_sec": timeout_sec }));
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

/// A time-out left nobody who mentions the tag, and says so.
#[track_caller]
fn assert_all_dead(result: &Value, tag: &str, what: &str) {
    assert_eq!((&result["rc"], &result["timed_out"]), (&json!(124), &json!(true)), "{what}: {result}");
    assert_eq!(result["survivors"], json!([]), "{what}");
    let left = processes::mentioning(tag);
    processes::kill(&left); // or they would outlive a test that fails
    assert_eq!(left, [0_u32; 0], "{what}");
}

/// The subreapers of an agent's calls, and its children that it has not waited for.
fn left_of(agent: &Agent) -> (usize, usize) {
    let named = |pid: &u32| processes::name_of(*pid) == SUBREAPER;
    let subreapers = processes::children_of(agent.pid()).into_iter().filter(named).count();
    (subreapers, processes::dead_children_of(agent.pid()))
}

#[test]
fn a_bounded_fork_bomb_is_ended_to_the_last() {
    /// A machine with other work may not start them all within the time-out: how often it may try.
    const TRIES: usize = 6;
    for (how, agent) in both() {
        let whole = (0..TRIES).any(|_| {
            let tag = processes::unique_seconds();
            let folder = tempfile::tempdir().unwrap();
            // most are forks that wait for a line which never comes: cheap, so that they all start in time. 75 plain
            // ones, 100 deaf to TERM, 75 orphans; 50 in sessions of their own, half without environment and parent;
            // 200 that are all of it, in eight sessions
            let script = format!(
                "mkfifo {fifo}; exec 9<>{fifo}
                 one() {{ read x <&9; }}
                 i=0; while [ $i -lt 25 ]; do i=$((i+1))
                 one & echo x; one & echo x; one & echo x
                 (trap '' TERM; one) & echo x; (trap '' TERM; one) & echo x
                 (trap '' TERM; one) & echo x; (trap '' TERM; one) & echo x
                 (one & echo x); (one & echo x); (one & echo x)
                 setsid sleep {tag} & echo x
                 (env -i /usr/bin/setsid /bin/sleep {tag} & echo x)
                 if [ $i -le 8 ]; then
                 (trap '' TERM; exec env -i /usr/bin/setsid /bin/sh -c '
                 i=0; while [ $i -lt 25 ]; do i=$((i+1)); (read x <&9) & echo x; done' {tag}) &
                 fi; done; wait",
                fifo = folder.path().join("fifo").display()
            );
            let begun = Instant::now();
            let answer = agent.post("/exec", &json!({ "argv": ["/bin/sh", "-c", script, tag], "timeout_sec": 2 }));
            let (result, took) = (answer.json, begun.elapsed());
            assert_all_dead(&result, &tag, how);
            assert!(took < Duration::from_secs(5), "{how}: {took:?}");
            let started = result["stdout"].as_str().unwrap().lines().count();
            let killed = usize::try_from(result["killed"].as_u64().unwrap()).unwrap();
            println!("measured: {how}: {started} started, {killed} killed, answered after {took:?}");
            assert!(killed >= started, "{how}: {killed} of {started}");
            // the leader, the eight that start others, and those of a round that was cut short
            assert!(killed <= started + 30, "{how}: {killed} of {started}: the agent's own are not counted");
            started == 500
        });
        assert!(whole, "{how}: this machine never got to start all of them within the time-out");
        assert_eq!(left_of(&agent), (0, 0), "{how}");
    }
}

#[test]
fn nobody_escapes_by_giving_up_all_that_proves_it() {
    for (how, agent) in both() {
        let tag = processes::unique_seconds();
        for script in [
            // no environment, another session, and its parent has been gone for a second when the kill comes
            format!("(env -i /usr/bin/setsid /bin/sleep {tag} &); sleep 30"),
            format!("(env -i /usr/bin/setsid /bin/sh -c '(/usr/bin/setsid /bin/sleep {tag} &)' &); sleep 30"),
            // and deaf
            format!(
                "(trap '' TERM HUP INT; exec env -i /usr/bin/setsid /bin/sh -c '/bin/sleep {tag} & exit' &); sleep 30"
            ),
            // the leader itself has none
            format!("(env -i /usr/bin/setsid /bin/sleep {tag} &); exec env -i /bin/sleep 30"),
            // who ends at the TERM while others do not
            format!(
                "(trap '' TERM; exec env -i /usr/bin/setsid /bin/sleep {tag} &); trap 'exit 0' TERM; sleep 30 & wait"
            ),
        ] {
            let result = sh(&agent, &script, 1.0);
            assert_all_dead(&result, &tag, &format!("{how}: {script}"));
        }
        assert_eq!(left_of(&agent), (0, 0), "{how}");
    }
}

#[test]
fn nobody_escapes_by_running() {
    for (how, agent) in both() {
        let tag = processes::unique_seconds();
        let folder = tempfile::tempdir().unwrap();
        let runner = folder.path().join(format!("runner-{tag}"));
        // each generation starts the next one and is gone
        std::fs::write(&runner, "trap '' TERM\n/bin/sh \"$0\" &\n").unwrap();
        let script = format!("(env -i /usr/bin/setsid /bin/sh {} &); sleep 30", runner.display());
        let result = sh(&agent, &script, 1.0);
        assert_all_dead(&result, &format!("runner-{tag}"), how);
        // one that had been missed would be seen by now
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            assert_eq!(processes::mentioning(&format!("runner-{tag}")), [0_u32; 0], "{how}");
        }
    }
}

#[test]
fn a_normal_exit_disturbs_nobody() {
    for (how, agent) in both() {
        let tag = processes::unique_seconds();
        let begun = Instant::now();
        let result = sh(
            &agent,
            &format!("sleep {tag} & (env -i /usr/bin/setsid /bin/sleep {tag} &); setsid sleep {tag} & exit 3"),
            60.0,
        );
        assert!(begun.elapsed() < Duration::from_secs(3), "{how}: {:?}", begun.elapsed());
        assert_eq!((&result["rc"], &result["killed"]), (&json!(3), &json!(0)), "{how}");
        assert_eq!(left_of(&agent), (0, 0), "{how}: the answer comes when it has ended");
        // they were forked before the exit; what they become takes its time
        wait_for("all of them", Duration::from_secs(5), || processes::mentioning(&tag).len() == 3);
        agent.stop();
        let left = processes::mentioning(&tag);
        assert_eq!(left.len(), 3, "{how}");
        processes::kill(&left);
    }
}

#[test]
fn ends_are_exact() {
    for (how, agent) in both() {
        for code in [0, 1, 2, 77, 124, 126, 127, 128, 137, 143, 255] {
            let result = sh(&agent, &format!("exit {code}"), 60.0);
            assert_eq!((&result["rc"], &result["signal"]), (&json!(code), &Value::Null), "{how}");
        }
        let folder = tempfile::tempdir().unwrap();
        for signal in [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 24, 25, 31, 34, 40, 64] {
            let script = format!("cd {}; ulimit -c 0; kill -{signal} $$; sleep 5", folder.path().display());
            let result = sh(&agent, &script, 60.0);
            assert_eq!((&result["rc"], &result["signal"]), (&json!(128 + signal), &json!(signal)), "{how}");
        }
        for argv in [["/no/such/program"], ["/etc/passwd"]] {
            let answer = agent.post("/exec", &json!({ "argv": argv }));
            assert_eq!((answer.status, &answer.json["error"]), (422, &json!("spawn_failed")), "{how}");
        }
        let missing = agent.post("/exec", &json!({ "argv": ["/no/such/program"] }));
        assert!(missing.json["detail"].as_str().unwrap().contains("No such file"), "{how}: {:?}", missing.json);
        // a stop is no end
        let result = sh(&agent, "sh -c 'kill -STOP $$; exit 5' & sleep 0.2; kill -CONT $!; wait $!", 60.0);
        assert_eq!(result["rc"], json!(5), "{how}");
        assert_eq!(left_of(&agent), (0, 0), "{how}");
    }
}

#[test]
fn two_hundred_calls_leave_nothing() {
    for (how, agent) in both() {
        sh(&agent, "true", 60.0);
        let before = agent.open_files();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..50 {
                        match i % 5 {
                            0 => assert_eq!(sh(&agent, "sleep 30", 0.1)["rc"], json!(124), "{how}"),
                            1 => assert_eq!(agent.post("/exec", &json!({ "argv": ["/none"] })).status, 422, "{how}"),
                            2 => assert_eq!(sh(&agent, "kill -9 $$", 60.0)["rc"], json!(137), "{how}"),
                            3 => assert_eq!(sh(&agent, "(sleep 0.3 &); exit 4", 60.0)["rc"], json!(4), "{how}"),
                            _ => assert_eq!(sh(&agent, "exit 5", 60.0)["rc"], json!(5), "{how}"),
                        }
                    }
                });
            }
        });
        assert_eq!(left_of(&agent), (0, 0), "{how}");
        // connections close in their own time; the process that drains left-behind output has a socket
        wait_for("its files to be closed", Duration::from_secs(10), || agent.open_files() <= before + 1);
    }
}

/// Begins a call that sleeps, and gives the agent's child above the program.
fn sleeping(agent: &Agent, tag: &str, script: &str) -> (crate::support::http::Pending, u32) {
    let caller = agent.begin_post("/exec", &json!({ "script": BASE64_STANDARD.encode(script), "timeout_sec": 4 }), &[]);
    wait_for("the program to run", Duration::from_secs(10), || !processes::with_args(&["sleep", tag]).is_empty());
    let children = processes::children_of(agent.pid());
    let [subreaper] = children[..] else { panic!("{children:?}") };
    (caller, subreaper)
}

#[test]
fn a_subreaper_shows_what_it_is_and_holds_nothing() {
    let agent = Agent::launch(&["--no-cgroups"], &[("FROM_OUTSIDE", "yes")]);
    let tag = processes::unique_seconds();
    let (caller, subreaper) = sleeping(&agent, &tag, &format!("exec sleep {tag}"));
    assert_eq!(processes::name_of(subreaper), SUBREAPER);
    let leader = processes::with_args(&["sleep", &tag])[0];
    assert_eq!(processes::parent_of(leader), subreaper);
    let environment = std::fs::read_to_string(format!("/proc/{subreaper}/environ")).unwrap();
    let shown = environment.trim_end_matches('\0');
    assert!(shown.starts_with("PODLINK_CALL=p-") && !shown.contains('\0'), "{shown:?}");
    // the slim form of a long call has /dev/null as its stdin, stdout and stderr, as every program gets them
    let files = || -> Vec<_> {
        let open = std::fs::read_dir(format!("/proc/{subreaper}/fd")).unwrap().flatten();
        open.filter_map(|file| std::fs::read_link(file.path()).ok()).collect()
    };
    assert!(files().iter().all(|file| file == Path::new("/dev/null")), "{:?}", files());
    assert_eq!(std::fs::read_link(format!("/proc/{subreaper}/cwd")).unwrap(), Path::new("/"));

    // a call that is not short: without what the agent had in memory, and still the same
    wait_for("its slim form", Duration::from_secs(10), || {
        processes::with_args(&[SUBREAPER, "agent", "hold", &leader.to_string()]) == [subreaper]
            && processes::name_of(subreaper) == SUBREAPER
    });
    assert!(files().iter().all(|file| file == Path::new("/dev/null")), "{:?}", files());
    let environment = std::fs::read_to_string(format!("/proc/{subreaper}/environ")).unwrap();
    assert_eq!(environment.trim_end_matches('\0'), shown);
    caller.hang_up(false);
    wait_for("both to be gone", Duration::from_secs(10), || {
        processes::with_args(&["sleep", &tag]).is_empty() && left_of(&agent) == (0, 0)
    });
}

#[test]
fn long_calls_end_as_exactly_as_short_ones() {
    let agent = Agent::with(&["--no-cgroups"]);
    let tag = processes::unique_seconds();
    std::thread::scope(|scope| {
        for (end, rc) in [("exit 7", 7), ("kill -9 $$", 137), ("kill -SEGV $$", 139), ("kill -40 $$", 168)] {
            let agent = &agent;
            scope.spawn(move || {
                // by its own word: its parent has another command line by then
                let script =
                    format!("until grep -qa hold /proc/$PPID/cmdline; do sleep 0.05; done; (sleep 0.01 &) ; {end}");
                assert_eq!(sh(agent, &script, 60.0)["rc"], json!(rc), "{end}");
            });
        }
        // and nobody gets away from it
        let script = format!(
            "until grep -qa hold /proc/$PPID/cmdline; do sleep 0.05; done; (env -i /usr/bin/setsid /bin/sleep {tag} &); sleep 60"
        );
        assert_all_dead(&sh(&agent, &script, 4.0), &tag, "long");
    });
    assert_eq!(left_of(&agent), (0, 0));
}

#[test]
fn who_kills_the_subreaper_ends_the_call_with_its_program() {
    let agent = Agent::with(&["--no-cgroups"]);
    let tag = processes::unique_seconds();
    let (caller, subreaper) = sleeping(&agent, &tag, &format!("exec sleep {tag}"));
    let begun = Instant::now();
    processes::signal(subreaper, Signal::KILL);
    let result = caller.answer().json;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((&result["rc"], &result["signal"], &result["timed_out"]), (&json!(137), &json!(9), &json!(false)));
    wait_for("the program to be gone", Duration::from_secs(5), || processes::with_args(&["sleep", &tag]).is_empty());
    assert_eq!(left_of(&agent), (0, 0));
    assert_eq!(sh(&agent, "exit 7", 60.0)["rc"], json!(7));
}

#[test]
fn signals_to_the_subreaper_end_nothing() {
    let agent = Agent::with(&["--no-cgroups"]);
    let tag = processes::unique_seconds();
    let (caller, subreaper) = sleeping(&agent, &tag, &format!("sleep {tag} & wait"));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR2, Signal::ALARM] {
        processes::signal(subreaper, signal);
    }
    // it cannot be kept from ending either
    processes::signal(subreaper, Signal::STOP);
    let result = caller.answer().json;
    assert_all_dead(&result, &tag, "stopped");
    assert_eq!(left_of(&agent), (0, 0));
}

#[test]
fn what_a_killed_agent_left_is_found_however_it_hides() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    for flags in [&["--no-cgroups", "--runs-dir"][..], &["--runs-dir"]] {
        let flags: Vec<&str> = flags.iter().copied().chain([runs.to_str().unwrap()]).collect();
        let agent = Agent::with(&flags);
        let tag = processes::unique_seconds();
        let script = format!("(env -i /usr/bin/setsid /bin/sleep {tag} &); exec env -i /bin/sleep {tag}");
        let caller = agent.begin_post("/exec", &json!({ "script": BASE64_STANDARD.encode(script) }), &[]);
        let both = || processes::with_args(&["/bin/sleep", &tag]);
        wait_for("the programs to run", Duration::from_secs(10), || both().len() == 2);
        let subreapers: Vec<u32> =
            both().into_iter().map(processes::parent_of).filter(|pid| processes::name_of(*pid) == SUBREAPER).collect();
        agent.kill();
        drop(caller);
        let next = Agent::with(&flags);
        assert!(both().is_empty(), "{flags:?}");
        for subreaper in subreapers {
            wait_for("its end", Duration::from_secs(5), || processes::name_of(subreaper) != SUBREAPER);
        }
        next.stop();
    }
}
