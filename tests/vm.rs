//! The whole chain: this machine's loopback, a real container, a real guest in QEMU, our agent in it.
//!
//! A guest takes seconds to boot, so each test is a story of one guest, told in steps; the log has a line for each.

mod systemd;

use std::{
    future::Future,
    io::{BufRead as _, Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use podlink::host::{AgentClient, Seen};

use crate::support::{
    vm::{Lab, Leg, Symptom, Vm, argv},
    wait_for,
};

/// For what takes a few seconds at most.
const SOON: Duration = Duration::from_secs(20);

/// Tells the log what is shown now.
fn step(what: &str) {
    println!("vm: {what}");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// V: the chain from end to end, and what a caller meets while the guest is well.
#[test]
fn a_guest_takes_calls() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("calls").publish_rdp().up();
    let took = vm.wait_ready();
    step(&format!("from `up` to ready: {:.1} s", took.as_secs_f64()));

    let run = vm.exec("uname -a").exits(0);
    step(&format!("the guest's `uname -a`: {}", run.stdout.trim()));
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(run.stdout.starts_with("Linux podlink-test-guest "), "{}", run.stdout);
    assert!(!run.stdout.contains(host.trim()), "this is the host's kernel: {}", run.stdout);

    step("exit codes and both streams");
    let run = vm.exec("echo out; echo err >&2; exit 7").exits(7);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out\n", "err\n"));
    drop(vm.podlink("exec", &["--", "sh", "-c", "kill -9 $$"]).run().exits(137));
    drop(vm.podlink("exec", &["--", "no-such-program"]).run().exits(125));

    vm.doctor(0, &["all is well"]);

    let client = vm.client();
    bytes_come_back(&client);
    a_call_that_times_out_leaves_nothing(&vm);
    output_is_whole_and_held_up_by_nobody(&vm);
    a_job_and_a_terminal(&vm);
    timings(&vm, &client);
    a_pause_loses_and_repeats_nothing(&vm);

    step("doctor of a paused pod");
    vm.pause();
    vm.doctor(1, &["the pod is paused", "pod resume"]);
    vm.resume();
    vm.wait_ready();

    vm.nobody_opened_a_desktop();
    step("the viewer's port is published; nobody has opened remote desktop, which the user's own file publishes");
    assert!(fetch(vm.web_port()).contains("no screen"));
    assert_eq!(vm.exec("cat /run/rdp-connections 2>/dev/null | wc -l").exits(0).stdout.trim(), "0");
    // and the guest would have told
    drop(TcpStream::connect(("127.0.0.1", vm.rdp_port())).unwrap());
    wait_for("the guest to see a remote desktop connection", SOON, || {
        vm.exec("cat /run/rdp-connections 2>/dev/null | wc -l").stdout.trim() == "1"
    });
}

fn bytes_come_back(client: &AgentClient) {
    step("1 MiB of every byte through stdin and back");
    let bytes: Vec<u8> = (0..1 << 20_u32).map(|n: u32| u8::try_from((n ^ n >> 8) & 0xff).unwrap()).collect();
    let mut request = argv(&["cat"], 30.0);
    request.stdin = Some(STANDARD.encode(&bytes));
    let begun = Instant::now();
    let outcome = block_on(client.exec(&request)).unwrap();
    println!("vm: it took {:.2} s", begun.elapsed().as_secs_f64());
    assert_eq!((outcome.result.rc, outcome.result.truncated), (0, false));
    assert!(outcome.stdout == bytes, "{} bytes came back, or others", outcome.stdout.len());
}

fn a_call_that_times_out_leaves_nothing(vm: &Vm) {
    step("a time-out kills the call's whole tree in the guest");
    let script = "sleep 7771 & setsid sleep 7772 & echo begun; sleep 7773";
    let run = vm.podlink("exec", &["--timeout", "1", script]).run().exits(124);
    assert_eq!(run.stdout, "begun\n");
    assert_eq!(vm.exec("ps | grep -c '[s]leep 777'").exits(1).stdout, "0\n");
}

fn output_is_whole_and_held_up_by_nobody(vm: &Vm) {
    step("10 MB on each stream, through the container and QEMU's network");
    let script = "head -c 10000000 /dev/zero | tr '\\0' o & head -c 10000000 /dev/zero | tr '\\0' e >&2; wait";
    let run = vm.exec(script).exits(0);
    assert_eq!((run.stdout.len(), run.stderr.len()), (10_000_000, 10_000_000));
    assert!(run.stdout.bytes().all(|byte| byte == b'o') && run.stderr.bytes().all(|byte| byte == b'e'));

    step("a child in the background holds nothing up, and lives on");
    let begun = Instant::now();
    assert_eq!(vm.exec("sleep 7774 & echo STARTED; exit 3").exits(3).stdout, "STARTED\n");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let left = vm.exec("ps | grep '[s]leep 7774' | awk '{print $1}'").exits(0).stdout;
    vm.exec(&format!("kill {}", left.trim())).exits(0);
}

fn a_job_and_a_terminal(vm: &Vm) {
    step("a job runs without its caller, and its output is taken up later");
    let id = vm.podlink("exec", &["--detach", "echo first; sleep 1; echo second; exit 5"]).run().exits(0).stdout;
    drop(vm.podlink("wait", &[id.trim()]).run().exits(5));
    assert_eq!(vm.podlink("logs", &[id.trim()]).run().exits(0).stdout, "first\nsecond\n");

    step("a program in a terminal of the guest");
    let run = vm.podlink("exec", &["-t", "test -t 0 && test -t 1 && echo yes"]).run().exits(0);
    assert_eq!(run.stdout, "yes\r\n");
}

fn timings(vm: &Vm, client: &AgentClient) {
    const CALLS: usize = 200;
    let health = kept_health(vm.agent_port(), CALLS);
    let exec = block_on(async {
        let mut took = Vec::new();
        for _ in 0..CALLS / 2 {
            let begun = Instant::now();
            assert_eq!(client.exec(&argv(&["true"], 10.0)).await.unwrap().result.rc, 0);
            took.push(begun.elapsed());
        }
        took
    });
    // what is shown is the figure; the bounds only catch what no busy machine explains
    for (what, took, bound) in [("/health", health, 100), ("exec of `true`", exec, 1000)] {
        let (p50, p99) = (percentile(&took, 50), percentile(&took, 99));
        step(&format!("{what} over a kept connection: p50 {p50:.2?}, p99 {p99:.2?}"));
        assert!(p50 < Duration::from_millis(bound), "{what} takes {p50:?}");
    }
}

fn a_pause_loses_and_repeats_nothing(vm: &Vm) {
    step("a pause in the middle of a call: it runs once and its answer arrives");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| vm.exec("echo ran >> /tmp/first; sleep 2; echo done"));
        wait_for("the call to begin", SOON, || vm.exec("cat /tmp/first").code == Some(0));
        vm.pause();
        let waiting = scope.spawn(|| vm.exec("echo ran >> /tmp/second"));
        // longer than what is left of the call
        std::thread::sleep(Duration::from_secs(3));
        assert!(!running.is_finished() && !waiting.is_finished());
        vm.resume();
        assert_eq!(running.join().unwrap().exits(0).stdout, "done\n");
        drop(waiting.join().unwrap().exits(0));
    });
    assert_eq!(vm.exec("cat /tmp/first /tmp/second").exits(0).stdout, "ran\nran\n");

    step("a call that was given up during a pause does not run after it");
    vm.pause();
    let run = vm.exec("echo ran >> /tmp/third").exits(125);
    step(&format!("it said after {:.1} s: {}", run.took.as_secs_f64(), run.stderr.trim()));
    vm.resume();
    vm.wait_ready();
    drop(vm.exec("cat /tmp/third").exits(1));
}

/// V: a clock that is two hours off is told and mended, by itself too, and no time-out goes by it.
#[test]
fn a_clock_that_is_off_is_mended() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("clock").up();
    vm.wait_ready();
    // `date` cuts off what is beyond the second: either way it is 7200 to 7201 s off
    let put = |hours: i64| {
        let seconds = hours * 3600 + i64::from(hours > 0);
        drop(vm.exec(&format!("date -s @$(($(date +%s) + {seconds}))")).exits(0));
    };
    let check = || vm.podlink("time-sync", &["--check", "--json"]).run();

    for (hours, way) in [(-2, "s behind"), (2, "s ahead")] {
        step(&format!("the guest's clock is put {hours} hours off while a call with a time-out runs"));
        let begun = format!("/tmp/begun{hours}");
        let script = format!("touch {begun}; sleep 600");
        std::thread::scope(|scope| {
            let running = scope.spawn(|| vm.podlink("exec", &["--timeout", "15", &script]).run());
            wait_for("the call to begin", SOON, || vm.exec(&format!("cat {begun}")).code == Some(0));
            put(hours);
            vm.doctor(0, &[way, "720", "TLS", "podlink pod time-sync"]);
            let date = date_of_an_answer(vm.agent_port());
            let off = date.duration_since(jiff::Timestamp::now()).as_secs() - hours * 3600;
            assert!(off.abs() <= 5, "the answers bear {date}");
            drop(check().exits(1));

            let run = vm.podlink("time-sync", &[]).run().exits(0);
            step(run.stdout.trim());
            let json = check().exits(0).json();
            let (offset, error) = (json["offset_ms"].as_f64().unwrap(), json["error_ms"].as_f64().unwrap());
            step(&format!("then it is {offset:.2} ms off, known to {error:.2} ms"));
            assert!(offset.abs() < 100.0, "{json}");
            // by another way than ours
            let before = jiff::Timestamp::now().as_second();
            let said: i64 = vm.exec("date +%s").exits(0).stdout.trim().parse().unwrap();
            assert!((before..=jiff::Timestamp::now().as_second()).contains(&said), "{before} {said}");
            vm.doctor(0, &["all is well"]);

            let run = running.join().unwrap().exits(124);
            step(&format!("the call with 15 s ended after {:.1} s", run.took.as_secs_f64()));
            assert!((15.0..40.0).contains(&run.took.as_secs_f64()), "{:?}", run.took);
        });
    }

    step("`up` on a pod that runs mends it by itself, and says so");
    put(-2);
    let run = vm.podlink("up", &[]).run().exits(0);
    assert!(run.stderr.contains("s behind and was stepped"), "{}", run.stderr);
    drop(check().exits(0));
    assert!(!vm.podlink("up", &[]).run().exits(0).stderr.contains("stepped"));

    step("so do `resume`, or else `wait-ready` after it");
    put(-2);
    drop(vm.podlink("pause", &[]).run().exits(0));
    let resumed = vm.podlink("resume", &[]).run().exits(0);
    let waited = vm.podlink("wait-ready", &["--timeout", "60"]).run().exits(0);
    let said = [resumed.stderr, waited.stderr].concat();
    assert_eq!(said.matches("s behind and was stepped").count(), 1, "{said}");
    drop(check().exits(0));

    step("and who follows the pod keeps it right");
    put(-2);
    let mut following = vm.podlink("events", &["--types", "agent.*"]).command();
    let mut following = following.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (sender, said) = std::sync::mpsc::channel();
    let lines = std::io::BufReader::new(following.stderr.take().unwrap()).lines();
    let reading = std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    wait_for("the clock to be mended", SOON, || check().code == Some(0));
    // it says so once it knows that it was
    while !said.recv_timeout(SOON).expect("it says so").contains("s behind and was stepped") {}
    let pid = rustix::process::Pid::from_raw(i32::try_from(following.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    following.wait().unwrap();
    drop(said);
    drop(reading.join().unwrap());

    step("what the guest is and how busy it is");
    let info = block_on(vm.client().system_info(true)).unwrap();
    assert_eq!((info.hostname.as_str(), info.cpus), ("podlink-test-guest", 1), "{info:?}");
    // busybox has an rpm, which has no packages to tell of
    assert!(info.packages.is_none() && info.packages_error.is_some());
    let metrics = block_on(vm.client().metrics()).unwrap();
    assert!(metrics.network.iter().any(|card| card.interface == "eth0" && card.received_bytes > 0), "{metrics:?}");
    assert!(metrics.agent.calls.timed_out == 2 && metrics.agent.killed >= 2, "{:?}", metrics.agent);
}

/// V: a machine that dies under a call, a container made anew, a token that the guest was not told.
#[test]
fn a_guest_that_dies_comes_back_with_its_disk() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("dies").up();
    vm.wait_ready();
    drop(vm.exec("printf marker | dd of=/dev/vda 2>/dev/null && sync").exits(0));
    let first = agent_id(&vm);

    step("QEMU is killed in the middle of a call: exec says so within seconds");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| vm.exec("echo ran >> /tmp/ran; sleep 60"));
        wait_for("the call to begin", SOON, || vm.exec("cat /tmp/ran").code == Some(0));
        let killed = Instant::now();
        vm.kill_machine();
        let run = running.join().unwrap().exits(125);
        let took = killed.elapsed();
        step(&format!("after {:.1} s: {}", took.as_secs_f64(), run.stderr.trim()));
        assert!(took < SOON, "{took:?}");
        assert!(!run.stderr.is_empty());
    });

    step("the engine starts it again: another agent, the same disk, and the call was not repeated");
    vm.wait_ready();
    assert_ne!(agent_id(&vm), first);
    drop(vm.exec("cat /tmp/ran").exits(1));
    assert_eq!(vm.exec("head -c 6 /dev/vda").exits(0).stdout, "marker");

    step("down and up with another token on the host: the disk stays, and with it the guest's old token");
    vm.down();
    vm.change_token();
    vm.up();
    let run = vm.podlink("wait-ready", &["--timeout", "60"]).run().exits(12);
    step(&format!("wait-ready said: {}", run.stderr.trim()));
    vm.doctor(1, &["token mismatch", "agent_token.txt"]);
    drop(vm.exec("true").exits(125));
    vm.nobody_opened_a_desktop();

    step("doctor of a pod that is down, and of one whose port another program has taken meanwhile");
    vm.down();
    vm.doctor(1, &["the pod has no container", "pod up"]);
    let taker = std::net::TcpListener::bind(("127.0.0.1", vm.agent_port())).unwrap();
    vm.doctor(1, &[&format!("port {} is taken by", vm.agent_port()), &format!("pid {}", std::process::id())]);
    let run = vm.podlink("up", &[]).run().exits(125);
    step(&format!("up said after {:.1} s: {}", run.took.as_secs_f64(), run.stderr.trim()));
    assert!(run.stderr.contains(&vm.agent_port().to_string()), "{}", run.stderr);
    drop(taker);
}

/// V: 503 while the installation runs, and the wait for its end.
#[test]
fn a_guest_that_installs_is_waited_for() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("installs").install("sleep 6; echo all is laid out > /run/installed").up();
    wait_for("503", SOON + SOON, || vm.symptom() == Symptom::Http(503));
    let seen = block_on(vm.client().health()).unwrap();
    assert!(matches!(&seen, Seen::NotReady(health) if health.waiting_for == ["/run/install.done"]), "{seen:?}");
    let run = vm.exec("cat /run/installed").exits(125);
    step(&format!("exec in the meantime said: {}", run.stderr.trim()));
    vm.doctor(1, &["not ready yet", "/run/install.done", "wait-ready"]);
    drop(vm.podlink("status", &[]).run().exits(0));

    let run = vm.podlink("wait-ready", &["--timeout", "60"]).run().exits(0);
    assert!(run.stderr.contains("installing, waits for /run/install.done"), "{}", run.stderr);
    assert_eq!(vm.exec("cat /run/installed").exits(0).stdout, "all is laid out\n");
    drop(vm.podlink("status", &[]).run().exits(0));
    vm.nobody_opened_a_desktop();
}

/// V: an installation that gives up ends the wait, with its own reason.
#[test]
fn a_failed_installation_is_told() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("fails").install("echo the disk is full; exit 1").up();
    let run = vm.podlink("wait-ready", &["--timeout", "60"]).run().exits(14);
    assert!(run.stderr.contains("the disk is full"), "{}", run.stderr);
    vm.doctor(1, &["the guest's installation failed", "the disk is full"]);
}

/// V: two at once, each by another way of the container's networking.
#[test]
fn two_pods_stand_side_by_side() {
    let Some(lab) = Lab::open() else { return };
    let pods = [lab.pod("nat").network("Y").up(), lab.pod("passt").network("passt").up()];
    for (vm, network) in pods.iter().zip(["nat", "passt"]) {
        let took = vm.wait_ready();
        step(&format!("{network}: ready after {:.1} s", took.as_secs_f64()));
        assert!(vm.console().contains(&format!("container: network {network},")), "{}", vm.console());
        drop(vm.exec(&format!("echo {network} > /tmp/name")).exits(0));
    }
    for (vm, network) in pods.iter().zip(["nat", "passt"]) {
        assert_eq!(vm.exec("cat /tmp/name").exits(0).stdout.trim(), network);
    }
    step("one goes down, the other does not notice");
    pods[0].down();
    assert_eq!(pods[0].container(), None);
    assert_eq!(pods[0].symptom(), Symptom::Refused);
    drop(pods[1].exec("true").exits(0));
}

/// A leg that is broken: what is met on the port, in the raw and by the client, that `wait-ready` waits on, and that
/// doctor names it and the way out.
fn breaks(vm: &Vm, up: &str, symptom: Symptom, seen: &Seen, doctor_says: &[&str]) {
    vm.wait_for_console(up);
    wait_for(&format!("{symptom:?}"), SOON, || vm.symptom() == symptom);
    assert_eq!(&block_on(vm.client().health()).unwrap(), seen);
    let run = vm.podlink("wait-ready", &["--timeout", "2"]).run().exits(10);
    step(&format!("{symptom:?}; wait-ready said: {}", run.stderr.trim()));
    assert_eq!(vm.symptom(), symptom, "it stays so");
    vm.doctor(1, doctor_says);
    vm.nobody_opened_a_desktop();
}

#[test]
fn without_user_ports() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("no-forward").without(Leg::UserPorts).up();
    breaks(
        &vm,
        "agent started",
        Symptom::Refused,
        &Seen::Refused,
        &["the guest's leg is missing", "USER_PORTS: \"8765\""],
    );
}

#[test]
fn without_a_published_port() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("unpublished").without(Leg::Published).up();
    breaks(
        &vm,
        "agent started",
        Symptom::Refused,
        &Seen::Refused,
        &["the host's leg is missing", &format!("127.0.0.1:{}:8765/tcp", vm.agent_port())],
    );
}

#[test]
fn with_an_agent_on_the_guests_loopback() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("loopback").conf("LISTEN=127.0.0.1:8765").up();
    breaks(&vm, "agent started", Symptom::Closed, &Seen::Reset, &["guest's loopback only", "--listen 0.0.0.0:8765"]);
}

#[test]
fn without_an_agent() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("no-agent").conf("AGENT=no").up();
    breaks(&vm, "without an agent", Symptom::Closed, &Seen::Reset, &["guest's loopback only", "--listen 0.0.0.0:8765"]);
}

#[test]
fn with_a_firewall_that_drops_in_silence() {
    let Some(lab) = Lab::open() else { return };
    let vm = lab.pod("firewall").conf("FIREWALL=drop").up();
    vm.wait_for_console("the firewall drops");
    breaks(
        &vm,
        "agent started",
        Symptom::Silent,
        &Seen::Silent,
        &["its firewall drops port 8765", "ufw allow 8765/tcp"],
    );
}

fn agent_id(vm: &Vm) -> String {
    block_on(vm.client().whoami()).unwrap().agent_id
}

/// The times of so many `GET /health` over one connection.
fn kept_health(port: u16, count: usize) -> Vec<Duration> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut took = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0, "closed after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&chunk[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        took.push(begun.elapsed());
    }
    took
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}

/// The `Date` of an answer.
fn date_of_an_answer(port: u16) -> jiff::Timestamp {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let dates: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("date: ")).collect();
    assert_eq!(dates.len(), 1, "{answer}");
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(dates[0]).unwrap()
}

/// The whole answer to `GET /`.
fn fetch(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
