//! `podlink pod exec` as a stream: output as it comes, at the reader's pace, and input.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{LocalPod, wait_for};

/// The most memory that a process has had, in KiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The exit code, within a time that no hang passes.
#[track_caller]
fn ends(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_first_line_comes_before_the_program_ends() {
    let pod = LocalPod::ready();
    let go = pod.file("go");
    let script = format!("echo first; echo aside >&2; while [ ! -e {go} ]; do sleep 0.05; done; echo last; exit 3");
    let mut child = pod.spawn(&["exec", &script], Stdio::null());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    assert_eq!(pod.running().len(), 1, "it runs still");
    std::fs::write(&go, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "last");
    assert!(lines.next().is_none());
    assert_eq!(stderr_of(&mut child), "aside\n");
    assert_eq!(ends(&mut child), Some(3));
}

#[test]
fn much_output_takes_little_memory() {
    const SIZE: u64 = 256 * 1024 * 1024;
    const LIMIT_KIB: u64 = 64 * 1024;
    let pod = LocalPod::ready();
    let begun = Instant::now();
    let mut child = pod.spawn(&["exec", &format!("head -c {SIZE} /dev/zero")], Stdio::null());
    let mut stdout = child.stdout.take().unwrap();
    let (mut got, mut client_peak, mut chunk) = (0, 0, vec![0; 64 * 1024]);
    loop {
        match stdout.read(&mut chunk).unwrap() {
            0 => break,
            count => got += count as u64,
        }
        if got < SIZE {
            // while it waits to write the rest it is alive for sure
            client_peak = client_peak.max(peak_memory(child.id()));
        }
    }
    assert_eq!(ends(&mut child), Some(0));
    assert_eq!(got, SIZE);
    let agent_peak = peak_memory(pod.pid());
    println!(
        "measured: {SIZE} bytes in {:.1} s; most memory: client {client_peak} KiB, agent {agent_peak} KiB",
        begun.elapsed().as_secs_f64()
    );
    assert!(client_peak > 0 && client_peak < LIMIT_KIB && agent_peak < LIMIT_KIB);
}

#[test]
fn a_reader_that_is_stopped_stops_the_program_and_nothing_else() {
    const LINES: u32 = 3_000_000;
    let pod = LocalPod::ready();
    let mut child = pod.spawn(&["exec", &format!("seq 1 {LINES}")], Stdio::null());
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    // until the program is held up: it has written no more for a while, far from its end
    let written = || pod.running()[0]["output_bytes"].as_u64().unwrap();
    let (mut last, mut since) = (0, Instant::now());
    wait_for("back-pressure", Duration::from_secs(30), || {
        let now = written();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        last > 0 && since.elapsed() > Duration::from_secs(2)
    });
    assert!(last < 8 * 1024 * 1024, "{last} bytes were taken from a program whose reader has stopped");
    let memory = (peak_memory(child.id()), peak_memory(pod.pid()));
    println!("measured: a stopped reader holds the program at {last} bytes; most memory in KiB: {memory:?}");
    pod.pod(&["exec", "true"]).run().exits(0);
    let mut expected = 2;
    for line in stdout.lines() {
        assert_eq!(line.unwrap(), expected.to_string());
        expected += 1;
    }
    assert_eq!(expected, LINES + 1);
    assert_eq!(ends(&mut child), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let pod = LocalPod::ready();
    let mut child = pod.spawn(&["exec", "while :; do echo y; done"], Stdio::null());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    assert_eq!(ends(&mut child), Some(141));
    assert_eq!(stderr_of(&mut child), "");
    pod.wait_until_idle();
}

#[test]
fn ctrl_c_works_while_the_reader_is_stopped() {
    let pod = LocalPod::ready();
    let mut child = pod.spawn(&["exec", "while :; do echo y; done"], Stdio::null());
    let mut first = [0; 2];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // pages of a pipe need not be full
    wait_for("a full pipe", Duration::from_secs(20), || {
        rustix::io::ioctl_fionread(child.stdout.as_ref().unwrap()).unwrap() >= 32 * 1024
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(ends(&mut child), Some(130));
    let said = stderr_of(&mut child);
    assert!(said.contains("was ended in the guest"), "{said}");
    pod.wait_until_idle();
}

/// E-19: neither `sleep 1000 | podlink …` nor a loop that reads lines around it loses anything to it.
#[test]
fn stdin_is_not_touched_unless_asked_for() {
    let pod = LocalPod::ready();
    let (reader, writer) = std::io::pipe().unwrap();
    let begun = Instant::now();
    let mut child = pod.spawn(&["exec", "--", "echo", "hi"], reader);
    assert_eq!(ends(&mut child), Some(0));
    println!("measured: with an open stdin that says nothing it takes {} ms", begun.elapsed().as_millis());
    drop(writer);

    let script = "while read line; do \"$PODLINK\" pod exec \"echo got $line\"; done";
    let mut shell = std::process::Command::new("sh")
        .args(["-c", script])
        .env("PODLINK", env!("CARGO_BIN_EXE_podlink"))
        .env("PODLINK_HOME", pod.home())
        .env_remove("PODLINK_POD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(b"1\n2\n3\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "got 1\ngot 2\ngot 3\n");
}

#[test]
fn input_goes_through_as_it_comes_and_unchanged() {
    let pod = LocalPod::ready();
    // both ways at once: more than all that lies between the two ends
    let bytes: Vec<u8> = (0..5_000_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()).collect();
    let mut child = pod.spawn(&["exec", "-i", "cat; echo end >&2; exit 4"], Stdio::piped());
    let (mut stdin, input) = (child.stdin.take().unwrap(), bytes.clone());
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    assert_eq!(stderr_of(&mut child), "end\n");
    assert_eq!(ends(&mut child), Some(4));

    // each line is answered before the next is typed
    let mut child = pod.spawn(&["exec", "-i", "--", "cat"], Stdio::piped());
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for line in ["one\n", "two\n"] {
        stdin.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer, line);
    }
    drop(stdin);
    assert_eq!(ends(&mut child), Some(0));
}

#[test]
fn the_program_ends_it_although_stdin_is_open() {
    let pod = LocalPod::ready();
    let mut child = pod.spawn(&["exec", "-i", "read line; echo \"$line\"; exit 3"], Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a line\n").unwrap();
    assert_eq!(ends(&mut child), Some(3));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), stderr_of(&mut child).as_str()), ("a line\n", ""));
    drop(stdin);
}

#[test]
fn ctrl_c_ends_an_interactive_call() {
    let pod = LocalPod::ready();
    let mut child = pod.spawn(&["exec", "-i", "echo begun; exec sleep 600"], Stdio::piped());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(ends(&mut child), Some(130));
    pod.wait_until_idle();
}

/// Whatever the manner of a call, Ctrl-C takes it out of the queue of its session.
#[test]
fn ctrl_c_ends_a_call_that_waits_for_its_turn() {
    let pod = LocalPod::ready();
    let id = pod.pod(&["exec", "-d", "--session", "build", "sleep 600"]).run().exits(0).stdout;
    for args in [&["exec", "--session", "build", "true"][..], &["exec", "-i", "--session", "build", "true"]] {
        let mut child = pod.spawn(args, Stdio::piped());
        wait_for("the queue", Duration::from_secs(10), || pod.running().len() == 2);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(ends(&mut child), Some(130));
        wait_for("its end", Duration::from_secs(10), || pod.running().len() == 1);
    }
    pod.pod(&["kill", id.trim()]).run().exits(0);
}

#[test]
fn a_time_limit_holds_and_is_told() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["exec", "--timeout", "1", "echo before; sleep 600"]).run().exits(124);
    assert_eq!(run.stdout, "before\n");
    assert!(run.stderr.contains("timed out"), "{}", run.stderr);
}
