//! Detached jobs and sessions, by the commands on them.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::Stdio,
    time::{Duration, Instant},
};

use crate::support::{Cli, LocalPod, cli::Run, processes, wait_for};

/// Starts a job and returns its id.
fn start(pod: &LocalPod, args: &[&str]) -> String {
    let run = pod.pod(&[&["exec", "--detach"], args].concat()).run().exits(0);
    let id = run.stdout.trim_end().to_owned();
    assert!(id.starts_with("p-") && !id.contains('\n') && run.stderr.is_empty(), "{run:?}");
    id
}

fn rows(run: &Run) -> Vec<Vec<&str>> {
    run.stdout.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn a_job_outlives_its_caller_and_is_found_again() {
    let pod = LocalPod::ready();
    let go = pod.file("go");
    let script = format!("echo out; echo err >&2; while [ ! -e {go} ]; do sleep 0.05; done; echo more; exit 3");
    let id = start(&pod, &[&script]);
    let short = &id[..8];

    wait_for("its first lines", Duration::from_secs(10), || {
        let run = pod.pod(&["logs", short]).run().exits(0);
        run.stdout == "out\n" && run.stderr == "err\n"
    });
    let list = pod.pod(&["ps"]).run().exits(0);
    let rows = rows(&list);
    assert_eq!(rows[0], ["id", "state", "mode", "age", "pid", "session", "output", "command"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][2]), (&*id, "running", "detached"));
    assert!(!list.stdout.contains("echo out"), "scripts may hold secrets");
    let known = &pod.running()[0];
    assert_eq!((known["process_id"].as_str(), known["output_bytes"].as_u64()), (Some(&*id), Some(8)));

    let run = pod.pod(&["wait", "--timeout", "0.3", &id]).run().exits(10);
    assert!(run.stderr.contains("podlink pod ps"), "{}", run.stderr);
    let mut follower = pod.spawn(&["logs", "-f", "--offset", "8", &id], Stdio::null());
    let mut waiter = pod.spawn(&["wait", &id], Stdio::null());
    std::fs::write(&go, "").unwrap();
    assert_eq!(waiter.wait().unwrap().code(), Some(3));
    let mut said = String::new();
    waiter.stdout.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{id} 3\n"));
    assert_eq!(follower.wait().unwrap().code(), Some(0), "showing went well, whatever the job did");
    said.clear();
    follower.stdout.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "more\n");

    assert!(pod.running().is_empty());
    let all = pod.pod(&["ps", "--all"]).run().exits(0);
    assert!(all.stdout.contains("exited 3"), "{}", all.stdout);
    // its output and its end are still to be had
    let run = pod.pod(&["logs", &id]).run().exits(0);
    assert_eq!((&*run.stdout, &*run.stderr), ("out\nmore\n", "err\n"));
    pod.pod(&["wait", &id]).run().exits(3);
    let json = pod.pod(&["wait", "--json", &id]).run().exits(3).json();
    assert_eq!((json["process_id"].as_str(), json["rc"].as_i64()), (Some(&*id), Some(3)));
}

#[test]
fn machines_are_told_the_numbers() {
    let pod = LocalPod::ready();
    let seconds = processes::unique_seconds();
    let json = pod.pod(&["exec", "-d", "--json", "--", "sleep", &seconds]).run().exits(0).json();
    let pids = processes::with_args(&["sleep", &seconds]);
    assert_eq!(json["pid"], pids[0]);
    let list = pod.pod(&["ps"]).run().exits(0);
    assert!(list.stdout.contains(&format!("sleep {seconds}")), "{}", list.stdout);
    pod.pod(&["kill", json["process_id"].as_str().unwrap()]).run().exits(0);
}

#[test]
fn a_kill_tells_how_many_it_ended() {
    let pod = LocalPod::ready();
    let seconds = processes::unique_seconds();
    let id = start(&pod, &[&format!("echo begun; sleep {seconds} & setsid sleep {seconds} & wait")]);
    wait_for("its children", Duration::from_secs(10), || processes::with_args(&["sleep", &seconds]).len() == 2);
    let run = pod.pod(&["kill", "--grace", "0.5", &id]).run().exits(0);
    assert_eq!(run.stdout, format!("{id} is ended: 3 processes\n"));
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
    let run = pod.pod(&["kill", &id]).run().exits(0);
    assert_eq!(run.stdout, format!("{id} had ended\n"));
    // its end is kept, and is none of the program's own
    let run = pod.pod(&["wait", &id]).run().exits(125);
    assert!(!run.stderr.is_empty());
    assert!(pod.pod(&["ps", "-a"]).run().exits(0).stdout.contains("cancelled"));
    assert_eq!(pod.pod(&["logs", &id]).run().exits(0).stdout, "begun\n");
    assert_eq!(pod.pod(&["logs", "-f", &id]).run().exits(0).stdout, "begun\n");
}

#[test]
fn signals_go_to_the_program_or_to_all() {
    let pod = LocalPod::ready();
    let script = "trap 'echo hup' HUP; trap 'echo usr; exit 9' USR1; echo up; while :; do sleep 0.05; done";
    let id = start(&pod, &[script]);
    let mut logs = pod.spawn(&["logs", "-f", &id], Stdio::null());
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let run = pod.pod(&["kill", "--signal", "HUP", &id]).run().exits(0);
    assert_eq!(run.stdout, format!("{id}: 1 process signalled\n"));
    assert_eq!(lines.next().unwrap().unwrap(), "hup");
    pod.pod(&["kill", "-s", "sigusr1", "--json", &id]).run().exits(0);
    assert_eq!(lines.next().unwrap().unwrap(), "usr");
    assert_eq!(logs.wait().unwrap().code(), Some(0));
    pod.pod(&["wait", &id]).run().exits(9);
    // one that cannot be done is told, and the others are done
    let other = start(&pod, &["exec sleep 600"]);
    let run = pod.pod(&["kill", "-s", "TERM", &id, &other]).run().exits(125);
    assert!(run.stderr.contains(&id) && run.stdout.contains(&other), "{run:?}");
    pod.pod(&["wait", &other]).run().exits(143);
    let json = pod.pod(&["kill", "--json", "-s", "NONSENSE", &id]).run().exits(125).json();
    assert_eq!(json["processes"][0]["process_id"], *id);
    assert!(json["processes"][0]["error"].is_string(), "{json}");
}

#[test]
fn a_job_reads_what_is_piped_into_attach_where_it_can_and_says_so_where_not() {
    let pod = LocalPod::ready();
    let id = start(&pod, &["-i", "read line; echo \"<$line>\"; cat; exit 6"]);
    let run = pod.pod(&["attach", &id]).stdin(b"one\ntwo\n").run().exits(6);
    assert_eq!((&*run.stdout, &*run.stderr), ("<one>\ntwo\n", ""));
    // what has ended is shown once more
    let run = pod.pod(&["attach", "--no-stdin", &id]).run().exits(6);
    assert_eq!(run.stdout, "<one>\ntwo\n");

    let go = pod.file("go");
    let id = start(&pod, &[&format!("while [ ! -e {go} ]; do sleep 0.05; done; cat; echo end")]);
    let (piped, mut pipe) = std::io::pipe().unwrap();
    pipe.write_all(b"for nobody").unwrap();
    let mut attached = pod.spawn(&["attach", &id], piped);
    std::fs::write(&go, "").unwrap();
    let mut line = String::new();
    BufReader::new(attached.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("stdin was left alone"), "{line}");
    assert_eq!(attached.wait().unwrap().code(), Some(0));
    // nothing was meant by an empty one
    let run = pod.pod(&["attach", &id]).run().exits(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn several_jobs_are_waited_for_as_pipefail_has_it() {
    let pod = LocalPod::ready();
    let [good, bad, worse] = ["true", "exit 4", "exit 5"].map(|script| start(&pod, &[script]));
    let run = pod.pod(&["wait", &worse, &bad, &good]).run().exits(4);
    assert_eq!(run.stdout, format!("{worse} 5\n{bad} 4\n{good} 0\n"));
    pod.pod(&["wait", &good]).run().exits(0);
    // one that is not known or has no end of its own keeps no other from being told
    let killed = start(&pod, &["exec sleep 600"]);
    pod.pod(&["kill", &killed]).run().exits(0);
    let run = pod.pod(&["wait", "p-zz", &killed, &bad, &good]).run().exits(4);
    assert_eq!(run.stdout, format!("{bad} 4\n{good} 0\n"));
    assert!(run.stderr.contains("podlink: p-zz: ") && run.stderr.contains(&format!("podlink: {killed}: ")), "{run:?}");
    let run = pod.pod(&["wait", "--json", &bad, &killed, "p-zz"]).run().exits(125);
    let ids: Vec<serde_json::Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["process_id"].clone())
        .collect();
    assert_eq!(ids, [&*bad, &*killed, "p-zz"]);
    assert_eq!(run.stdout.lines().next().unwrap().matches("process_id").count(), 1, "{run:?}");
}

/// Without a word of the program's: what is attached comes back from where it was.
#[test]
fn an_attached_job_is_come_back_to_when_its_connection_is_cut() {
    let pod = LocalPod::ready();
    let link = pod.over_link();
    let go = pod.file("go");
    let id = start(&pod, &[&format!("seq 50000; while [ ! -e {go} ]; do sleep 0.05; done; seq 50000; exit 6")]);
    // the connection breaks in the middle of the output, and stays so for a while
    link.cut_after(100_000);
    let mut attached = pod.spawn(&["attach", &id], Stdio::null());
    let reading = read_all(attached.stdout.take().unwrap());
    wait_for("the cut", Duration::from_secs(10), || link.is_cut());
    link.mend();
    link.cut_after(150_000);
    wait_for("the second cut", Duration::from_secs(10), || link.is_cut());
    std::fs::write(&go, "").unwrap();
    link.mend();
    assert_eq!(attached.wait().unwrap().code(), Some(6));
    let numbers = reading.join().unwrap();
    assert!(numbers.lines().map(|line| line.parse::<u32>().unwrap()).eq((1..=50_000).chain(1..=50_000)));

    // in the middle of what is piped in: nothing of that may be missing, and nobody can tell what is
    let id = start(&pod, &["-i", "read line; echo got $line; cat"]);
    link.mend();
    let (input, mut pipe) = std::io::pipe().unwrap();
    let mut attached = pod.spawn(&["attach", &id], input);
    pipe.write_all(b"one\n").unwrap();
    let mut said = String::new();
    BufReader::new(attached.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "got one\n");
    link.cut();
    assert_eq!(attached.wait().unwrap().code(), Some(125));
    said.clear();
    BufReader::new(attached.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("while input was passed on") && said.contains(&format!("--offset 8 {id}`")), "{said}");
    link.mend();

    // for ever: it says how to come back
    let id = start(&pod, &["-i", "echo ready; cat"]);
    let (input, keys) = std::io::pipe().unwrap();
    let mut attached = pod.spawn(&["attach", &id], input);
    let mut said = String::new();
    BufReader::new(attached.stdout.take().unwrap()).read_line(&mut said).unwrap();
    drop(link);
    assert_eq!(attached.wait().unwrap().code(), Some(125));
    said.clear();
    BufReader::new(attached.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains(&format!("`podlink pod attach --pod windows --offset 6 {id}`")), "{said}");
    drop(keys);
}

fn read_all(mut source: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        source.read_to_string(&mut text).unwrap();
        text
    })
}

#[test]
fn a_call_that_waits_is_taken_out_of_the_line() {
    let pod = LocalPod::ready();
    let first = start(&pod, &["--session", "build", "sleep 600"]);
    let mut queued = pod.spawn(&["exec", "--session", "build", "echo never"], Stdio::null());
    wait_for("the queue", Duration::from_secs(10), || pod.running().len() == 2);
    let id = pod.running()[1]["process_id"].as_str().unwrap().to_owned();
    let run = pod.pod(&["kill", &id]).run().exits(0);
    assert_eq!(run.stdout, format!("{id} was taken out of the line\n"));
    assert_eq!(queued.wait().unwrap().code(), Some(125));
    let run = pod.pod(&["sessions", "--end", "nope"]).run().exits(125);
    assert!(run.stderr.contains("session nope") && run.stderr.contains("podlink pod sessions"), "{}", run.stderr);
    pod.pod(&["kill", "-9", &first]).run().exits(0);
    pod.pod(&["wait", &first]).run().exits(137);
}

#[test]
fn ids_that_fit_none_or_many_are_told() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["wait", "p-zz"]).run().exits(125);
    assert!(run.stderr.contains("podlink pod ps --all"), "{}", run.stderr);
    // with one job alone an id that a script forgot to set would be the beginning of it
    let id = start(&pod, &["sleep 600"]);
    for nothing in ["", "p-"] {
        let run = pod.pod(&["kill", nothing]).run().exits(125);
        assert!(run.stderr.contains("names no job"), "{}", run.stderr);
    }
    pod.pod(&["kill", &id]).run().exits(0);
    let run = pod.pod(&["logs", "other"]).run().exits(2);
    assert!(run.stderr.contains("--pod other"), "{}", run.stderr);
    for wrong in [
        &["kill"][..],
        &["wait"],
        &["kill", "--tree", "p-1"],
        &["kill", "--grace", "61", "p-1"],
        &["logs", "--offset", "1"],
    ] {
        pod.pod(wrong).run().exits(2);
    }
}

#[test]
fn output_that_the_ring_has_lost_is_said() {
    let pod = LocalPod::ready();
    let id = start(&pod, &["head -c 9000000 /dev/zero"]);
    pod.pod(&["wait", &id]).run().exits(0);
    // the oldest that is kept is what was asked for
    let run = pod.pod(&["logs", &id]).run().exits(0);
    assert!(!run.stdout.is_empty() && run.stdout.len() < 9_000_000);
    let kept = run.stdout.len();
    let run = pod.pod(&["attach", &id]).run().exits(0);
    assert_eq!(run.stdout.len(), kept);
    assert_eq!(run.stderr, format!("podlink: the first {} bytes are no longer kept\n", 9_000_000 - kept));
    // from the beginning on, some is missing
    let run = pod.pod(&["logs", "--offset", "0", &id]).run().exits(125);
    assert_eq!(run.stdout.len(), kept);
    assert!(run.stderr.contains(&format!("{} bytes of the output are lost", 9_000_000 - kept)), "{}", run.stderr);
}

/// A follower that nobody reads ends without waiting for more output.
#[test]
fn a_follower_ends_with_its_reader() {
    let pod = LocalPod::ready();
    let id = start(&pod, &["echo ready; sleep 600"]);
    let mut logs = pod.spawn(&["logs", "-f", &id], Stdio::null());
    let mut line = String::new();
    BufReader::new(logs.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let begun = Instant::now();
    assert_eq!(logs.wait().unwrap().code(), Some(141));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(pod.running().len(), 1, "the job is not the follower's");
    pod.pod(&["kill", &id]).run().exits(0);
}

#[test]
fn a_session_shows_what_runs_and_what_waits() {
    let pod = LocalPod::ready();
    let go = pod.file("go");
    let wait = format!("while [ ! -e {go} ]; do sleep 0.05; done");
    let first = start(&pod, &["--session", "build", &wait]);
    let mut second = pod.spawn(&["exec", "--session", "build", "echo second"], Stdio::null());
    let mut third = pod.spawn(&["exec", "--session", "build", "echo third"], Stdio::null());
    wait_for("the queue", Duration::from_secs(10), || {
        let json = pod.pod(&["sessions", "--json"]).run().exits(0).json();
        json["sessions"][0]["queued"].as_array().is_some_and(|queued| queued.len() == 2)
    });
    let run = pod.pod(&["sessions"]).run().exits(0);
    let rows = rows(&run);
    assert_eq!((rows[1][0], rows[1][1], rows[1][2]), ("build", "runs", &*first));
    assert_eq!((rows[2][1], rows[3][1]), ("1", "2"));
    assert!(pod.pod(&["ps"]).run().exits(0).stdout.contains("queued"));
    let run = pod.pod(&["exec", "--session", "build", "--no-queue", "true"]).run().exits(125);
    assert!(!run.stderr.is_empty());
    // another session is none of its business
    pod.pod(&["exec", "--session", "other", "true"]).run().exits(0);

    std::fs::write(&go, "").unwrap();
    for child in [&mut second, &mut third] {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let run = pod.pod(&["sessions", "--end", "build"]).run().exits(125);
    assert!(!run.stderr.is_empty());
}

#[test]
fn a_session_is_ended_as_a_whole_and_nothing_else_is() {
    let pod = LocalPod::ready();
    let other = start(&pod, &["--session", "other", "sleep 600"]);
    start(&pod, &["--session", "build", "sleep 600"]);
    let mut queued = pod.spawn(&["exec", "--session", "build", "echo never"], Stdio::null());
    wait_for("the queue", Duration::from_secs(10), || pod.running().len() == 3);
    let json = pod.pod(&["sessions", "--end", "build", "--json"]).run().exits(0).json();
    assert_eq!((json["session"].as_str(), json["ended"].as_u64()), (Some("build"), Some(2)));
    assert_eq!(queued.wait().unwrap().code(), Some(125));
    let left = pod.running();
    assert_eq!((left.len(), left[0]["process_id"].as_str()), (1, Some(&*other)));
    pod.pod(&["kill", &other]).run().exits(0);
}

#[test]
fn the_guests_processes_and_sockets_are_shown() {
    let pod = LocalPod::ready();
    let seconds = processes::unique_seconds();
    let id = start(&pod, &["--", "sleep", &seconds]);
    let pid = processes::with_args(&["sleep", &seconds])[0];
    let run = pod.pod(&["top"]).run().exits(0);
    let header = run.stdout.lines().next().unwrap();
    assert!(header.contains("pid") && header.contains("memory"), "{header}");
    let line = run.stdout.lines().find(|line| line.contains(&seconds)).expect("all processes are there");
    assert!(line.trim_start().starts_with(&pid.to_string()) && line.contains(&id[..10]), "{line}");
    let json = pod.pod(&["top", "--json"]).run().exits(0).json();
    assert!(json["processes"].as_array().unwrap().iter().any(|process| process["pid"] == pid));

    let run = pod.pod(&["top", "--sockets", "--once"]).run().exits(0);
    let port = pod.port().to_string();
    let mine = run.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = mine.filter(|cells| cells[0] == "tcp" && cells[2] == port).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{}", run.stdout);
    assert_eq!(found[0][4], pod.pid().to_string());
    pod.pod(&["kill", &id]).run().exits(0);
}

#[test]
fn a_job_ends_with_its_agent() {
    let pod = LocalPod::ready();
    let seconds = processes::unique_seconds();
    let id = start(&pod, &["--", "sleep", &seconds]);
    let mut waiter = pod.spawn(&["wait", &id], Stdio::null());
    // it is attached to the job's output once it has been answered something; without, the restart is met sooner
    pod.pod(&["restart"]).run().exits(0);
    pod.pod(&["wait-ready", "--timeout", "30"]).run().exits(0);
    assert_eq!(waiter.wait().unwrap().code(), Some(125));
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
    pod.pod(&["logs", &id]).run().exits(125);
}

#[test]
fn commands_on_jobs_of_a_pod_that_is_not_there_say_so() {
    let home = tempfile::tempdir().unwrap();
    for args in
        [&["ps"][..], &["wait", "p-1"], &["kill", "p-1"], &["attach", "p-1"], &["sessions"], &["top"], &["shell"]]
    {
        let run = Cli::new([&["pod"], args].concat()).home(home.path()).run().exits(125);
        assert!(run.stderr.contains("podlink setup"), "{args:?}: {}", run.stderr);
    }
}
