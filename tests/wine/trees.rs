//! The processes of a call on Windows: how they are ended, and how they are left alone.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    WineAgent, processes, wait_for,
    wine_calls::{PATIENCE, cmd},
};

/// What a call may take beyond what it has been given.
const SOON: Duration = Duration::from_secs(15);

/// A number of seconds that tells one test's `ping` from others in the same world.
fn ping(seconds: u32) -> String {
    format!("ping -n {seconds} 127.0.0.1")
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    let Some(agent) = WineAgent::start() else { return };
    let two_deep = format!("echo before\r\ncmd /c \"cmd /c \"\"{} >nul\"\"\"", ping(601));
    let started =
        format!("echo before\r\nstart /b {} >nul\r\nstart {} >nul\r\n{}>nul", ping(602), ping(602), ping(602));
    for (source, tag) in [(two_deep, "-n 601"), (started, "-n 602")] {
        let mut body = cmd(&source);
        body["timeout_sec"] = json!(3);
        let begun = Instant::now();
        let call = agent.begin("POST", "/exec", &body, &[]);
        wait_for("its programs", PATIENCE, || !agent.wine().pids_of(tag).is_empty());
        let result = call.answer().json;
        let took = begun.elapsed();
        assert_eq!((&result["rc"], &result["timed_out"]), (&json!(124), &json!(true)), "{result}");
        assert_eq!((&result["survivors"], result["stdout"].as_str().unwrap().trim_end()), (&json!([]), "before"));
        assert!(took > Duration::from_secs(2) && took < Duration::from_secs(3) + SOON, "{took:?}");
        assert!(result["killed"].as_u64().unwrap() >= 2, "{result}");
        agent.wait_for_processes(tag, 0);
    }
    // of a call that starts one after the other, nobody escapes who was started in the instant before
    let mut body = cmd(&format!(":again\r\nstart /b {} >nul\r\ngoto again", ping(603)));
    body["timeout_sec"] = json!(2);
    let result = agent.exec(&body);
    assert_eq!((&result["timed_out"], &result["survivors"]), (&json!(true), &json!([])), "{result}");
    agent.wait_for_processes("-n 603", 0);
}

#[test]
fn the_hosts_time_limit_and_ctrl_c_end_it_too() {
    let Some(agent) = WineAgent::start() else { return };
    let run = agent.pod(&["exec", "--timeout", "2", "--shell", "cmd", &format!("echo begun& {}>nul", ping(604))]).run();
    assert_eq!((run.code, run.stdout.trim_end()), (Some(124), "begun"), "{}", run.stderr);
    agent.wait_for_processes("-n 604", 0);
    let mut child = agent.pod(&["exec", "--shell", "cmd", &ping(605)]).command();
    let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for("the program", PATIENCE, || !agent.wine().pids_of("-n 605").is_empty());
    processes::signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    agent.wait_for_processes("-n 605", 0);
}

#[test]
fn a_background_child_does_not_hold_the_answer_and_lives_on() {
    let Some(agent) = WineAgent::start() else { return };
    let begun = Instant::now();
    // `start /b` of Wine's command processor waits for programs of its own subsystem; this one does not
    let line = format!("\"{}\" wait {}", agent.wine().probe(), agent.wine().file("go").1);
    let result = agent.exec(&agent.probe(&["start", &line]));
    assert_eq!((&result["rc"], &result["stdout"], &result["killed"]), (&json!(0), &json!("started\n"), &json!(0)));
    let result = agent.exec(&cmd(&format!("start /b {}\r\nexit 3", ping(606))));
    assert_eq!(result["rc"], json!(3), "{result}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let left = || (agent.wine().pids_of("probe.exe wait").len(), agent.wine().pids_of("-n 606").len());
    wait_for("what a normal exit leaves behind", PATIENCE, || {
        let (waiting, pinging) = left();
        waiting >= 1 && pinging >= 1
    });
    // another call's time-out takes nobody else with it
    let mut other = cmd(&ping(607));
    other["timeout_sec"] = json!(1);
    assert_eq!(agent.exec(&other)["timed_out"], json!(true));
    let (waiting, pinging) = left();
    assert!(waiting >= 1 && pinging >= 1);
    // nor does the agent's end; and they end by themselves
    stop(&agent);
    assert!(left().0 >= 1 && left().1 >= 1);
    assert!(!agent.log().contains("could not remove"), "{}", agent.log());
    std::fs::write(agent.wine().file("go").0, "").unwrap();
    agent.wait_for_processes("probe.exe wait", 0);
}

/// Asks the agent to end, and waits until it has.
fn stop(agent: &WineAgent) {
    let (pid, own) = (agent.windows_pid(), agent.pid());
    agent.wine().run(&agent.wine().probe(), &["stop", r"Global\podlink-agent-stop-", &pid]).exits(0);
    wait_for("the agent's end", PATIENCE, || !agent.wine().pids_of("agent serve").contains(&own));
}

#[test]
fn a_left_behind_child_may_go_on_writing_also_after_the_agent() {
    for killed in [false, true] {
        let Some(mut agent) = WineAgent::start() else { return };
        let [(report, report_w), (go, go_w)] = ["report", "go"].map(|name| agent.wine().file(name));
        let line = format!("\"{}\" write {report_w} {go_w}", agent.wine().probe());
        let result = agent.exec(&agent.probe(&["start", &line]));
        assert!(result["stdout"].as_str().unwrap().contains("started\n"), "{}", result["stdout_bytes"]);
        let said = || std::fs::read_to_string(&report).unwrap_or_default();
        wait_for("the child's first word", PATIENCE, || !said().is_empty());
        assert_eq!(said(), "half", "more than a pipe holds has been taken from it");
        if killed {
            agent.kill();
        } else {
            stop(&agent);
        }
        wait_for("the one that drains", PATIENCE, || agent.wine().pids_of("agent drain").len() == 1);
        std::fs::write(go, "").unwrap();
        wait_for("the child's last word", PATIENCE, || said() != "half");
        assert_eq!(said(), "whole", "killed: {killed}");
        agent.wait_for_processes("agent drain", 0);
    }
}

#[test]
fn a_hundred_left_behind_children_leak_nothing_in_the_agent() {
    let Some(agent) = WineAgent::start() else { return };
    let (go, go_w) = agent.wine().file("go");
    let line = format!("\"{}\" wait {go_w}", agent.wine().probe());
    let body = agent.probe(&["start", &line]);
    let run = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..count).for_each(|_| assert_eq!(agent.exec(&body)["rc"], json!(0))));
            }
        });
    };
    run(8); // threads and the one that drains are there
    std::fs::write(&go, "").unwrap();
    agent.wait_for_processes("probe.exe wait", 0);
    let before = Held::by(&agent);
    std::fs::remove_file(&go).unwrap();
    run(25);
    agent.wait_for_processes("probe.exe wait", 100);
    // the agent itself has given up all of it while they still live
    let mut held = Held::by(&agent);
    wait_for(&format!("{before:?} again"), PATIENCE, || {
        held = Held::by(&agent);
        held.files <= before.files + 20 && held.threads <= before.threads + 8
    });
    println!("measured: an agent under Wine before and after 100 calls that left somebody: {before:?}, {held:?}");
    std::fs::write(go, "").unwrap();
    agent.wait_for_processes("probe.exe wait", 0);
    wait_for(&format!("{before:?} again"), PATIENCE, || {
        held = Held::by(&agent);
        held.in_server <= before.in_server + 60
    });
    println!("measured: and after their end: {held:?}");
    // the one that drains had 200 pipes and more, and gives them up too
    wait_for("the drained pipes to be closed", PATIENCE, || {
        agent.wine().pids_of("agent drain").iter().all(|pid| files_of(*pid) < 60)
    });
}

/// What the agent holds open: files are what Wine makes of handles, here and in its server. It counts no handles.
#[derive(Debug, Clone, Copy)]
struct Held {
    files: usize,
    in_server: usize,
    threads: usize,
}

fn files_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

impl Held {
    fn by(agent: &WineAgent) -> Self {
        let pid = agent.pid();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        let server = agent.wine().pids_of("wineserver").into_iter().map(files_of).sum();
        Self { files: files_of(pid), in_server: server, threads }
    }
}

#[test]
fn what_a_killed_agent_left_is_swept_by_the_next() {
    let Some(mut agent) = WineAgent::start() else { return };
    let bodies = [cmd(&format!("cmd /c \"{}\"", ping(608))), cmd(&format!("start /b {}\r\n{}", ping(608), ping(608)))];
    for body in &bodies {
        agent.spawn(body);
    }
    let of_cmd = agent.spawn(&json!({ "argv": ["ping", "-n", "608", "127.0.0.1"] }));
    wait_for("their programs", PATIENCE, || agent.wine().pids_of("-n 608").len() >= 4);
    // one that has ended, and what it left is nobody's: it is not swept
    agent.exec(&agent.probe(&["start", &format!("\"{}\" wait {}", agent.wine().probe(), agent.wine().file("go").1)]));
    let runs = runs_of(&agent);
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(runs[0].join(&of_cmd).exists());
    agent.kill();
    assert!(agent.wine().pids_of("-n 608").len() >= 4, "{:?}", agent.wine().processes());
    agent.start_again();
    agent.wait_for_processes("-n 608", 0);
    assert!(!agent.wine().pids_of("probe.exe wait").is_empty());
    wait_for("the folder of the first to be gone", PATIENCE, || !runs[0].exists());
    let log = agent.log();
    assert_eq!(log.matches("swept a call that an agent before this one had not ended").count(), 3, "{log}");
    assert!(!log.contains("could not remove"), "{log}");
    // and it takes calls as ever
    assert_eq!(agent.exec(&cmd("echo well"))["stdout"].as_str().unwrap().trim_end(), "well");
    std::fs::write(agent.wine().file("go").0, "").unwrap();
}

/// The folders of agents' runs.
fn runs_of(agent: &WineAgent) -> Vec<PathBuf> {
    let users = std::fs::read_dir(agent.wine().drive_c().join("users")).unwrap().flatten();
    let runs = users.filter_map(|user| std::fs::read_dir(user.path().join("AppData/Local/podlink/runs")).ok());
    runs.flatten().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn files_of_runs_are_gone_afterwards() {
    let Some(agent) = WineAgent::start() else { return };
    for _ in 0..10 {
        agent.exec(&cmd("echo x"));
    }
    let runs = runs_of(&agent);
    assert_eq!(runs.len(), 1, "{runs:?}");
    let names =
        || -> Vec<_> { std::fs::read_dir(&runs[0]).unwrap().flatten().map(|entry| entry.file_name()).collect() };
    wait_for("the folders of runs to be gone", PATIENCE, || names() == ["lock"]);
    assert!(!agent.log().contains("could not remove"), "{}", agent.log());
    stop(&agent);
    wait_for("the folder of runs to be gone", PATIENCE, || !runs[0].exists());
    assert!(!agent.log().contains("could not remove"), "{}", agent.log());
}

/// A program that asks for it is outside of the tree where the call lets it, and nowhere else.
#[test]
fn nobody_breaks_away_unless_it_is_allowed() {
    let Some(agent) = WineAgent::start() else { return };
    for (allowed, mark) in [(false, "go-not"), (true, "go-free")] {
        let line = format!("\"{}\" wait {}", agent.wine().probe(), agent.wine().file(mark).1);
        let mut body = agent.probe(&["escape", &line]);
        body["allow_breakaway"] = json!(allowed);
        let id = agent.spawn(&body);
        let mut said: Value = Value::Null;
        agent.output(&id).wait_for_stdout(if allowed { "away\n" } else { "refused\n" });
        let ended = agent.delete(&format!("/processes/{id}"));
        assert_eq!(ended.json["survivors"], json!([]), "{ended:?}");
        wait_for("it to be decided", PATIENCE, || {
            said = json!(agent.wine().pids_of(mark).len());
            allowed == (agent.wine().pids_of(&format!("wait {}", agent.wine().file(mark).1)).len() == 1)
        });
        std::fs::write(agent.wine().file(mark).0, "").unwrap();
    }
}
