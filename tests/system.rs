//! `GET /system/processes` and `GET /system/sockets`: real processes and sockets, seen by a real agent.

use std::{
    ffi::OsStr,
    net::{TcpListener, UdpSocket},
    os::unix::ffi::OsStrExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use podlink::protocol::{SocketProtocol, SystemProcess, SystemProcesses, SystemSocket, SystemSockets, Whoami};
use serde_json::json;

use crate::support::{Agent, processes, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// A child that does not outlive its test.
struct Killed(Child);

impl Killed {
    fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[track_caller]
fn snapshot(agent: &Agent) -> SystemProcesses {
    let answer = agent.get("/system/processes");
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_value(answer.json).unwrap()
}

#[track_caller]
fn look(agent: &Agent, pid: u32) -> Option<SystemProcess> {
    snapshot(agent).processes.into_iter().find(|process| process.pid == pid)
}

#[track_caller]
fn sockets(agent: &Agent, protocol: SocketProtocol, port: u16) -> Vec<SystemSocket> {
    let answer = agent.get("/system/sockets");
    assert_eq!(answer.status, 200, "{answer:?}");
    let all: SystemSockets = serde_json::from_value(answer.json).unwrap();
    all.sockets.into_iter().filter(|socket| (socket.protocol, socket.port) == (protocol, port)).collect()
}

/// Waits until a process is seen as wanted.
#[track_caller]
fn wait_to_see(what: &str, agent: &Agent, pid: u32, wanted: impl Fn(&SystemProcess) -> bool) -> SystemProcess {
    let mut seen = None;
    wait_for(what, PATIENCE, || {
        seen = look(agent, pid).filter(&wanted);
        seen.is_some()
    });
    seen.unwrap()
}

#[test]
fn names_of_any_kind_break_nothing() {
    let (agent, folder) = (Agent::start(), tempfile::tempdir().unwrap());
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    for name in [&b"a) R (\nb"[..], b") Z 1 1 (", b"\xff\xfe) (", b" ", b"\n\n", b"a:\tb\\n\"'"] {
        let program = folder.path().join(OsStr::from_bytes(name));
        std::os::unix::fs::symlink(&sleep, &program).unwrap();
        let child = Killed::spawn(Command::new(&program).arg("600"));
        let name = String::from_utf8_lossy(name);
        let seen = wait_to_see("the odd name", &agent, child.pid(), |process| process.name == name);
        assert_eq!(seen.ppid, std::process::id());
        assert_eq!(seen.argv, [&*program.to_string_lossy(), "600"]);
        assert!(matches!(seen.state.as_deref(), Some("S" | "R")), "{seen:?}");
        assert!(seen.memory_bytes > 0 && seen.threads == 1, "{seen:?}");
        assert_eq!((seen.signals_caught, seen.process_id), (Some(vec![]), None));
    }
}

#[test]
fn arguments_are_shown_as_they_are() {
    let agent = Agent::start();
    let odd = OsStr::from_bytes(b"\xffz");
    let child = Killed::spawn(Command::new("sh").args(["-c", "kill -STOP $$", "", "a b", "c\nd"]).arg(odd).arg(""));
    let seen = wait_to_see("the shell to stop", &agent, child.pid(), |process| process.state.as_deref() == Some("T"));
    assert_eq!(seen.argv, ["sh", "-c", "kill -STOP $$", "", "a b", "c\nd", "\u{fffd}z", ""]);
}

#[test]
fn signals_that_are_caught_blocked_and_ignored_are_named() {
    let agent = Agent::start();
    if !Command::new("env").args(["--block-signal=USR2", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this env cannot block signals");
        return;
    }
    // the C library's own two, which no program can set, are as whoever started the tests left them
    let named = |all: Option<Vec<String>>| {
        let mut all = all.unwrap();
        all.retain(|name| !["32", "33"].contains(&name.as_str()));
        all
    };

    let signals = ["--default-signal", "--block-signal=USR2,RTMIN+1", "--ignore-signal=WINCH"];
    let child = Killed::spawn(Command::new("env").args(signals).args(["sleep", "600"]));
    let seen = wait_to_see("the sleep", &agent, child.pid(), |process| process.name == "sleep");
    assert_eq!(named(seen.signals_blocked), ["USR2", "RTMIN+1"]);
    assert_eq!(named(seen.signals_ignored), ["WINCH"]);
    assert_eq!(named(seen.signals_caught), [""; 0]);

    let script = "trap : USR1 TERM; trap '' HUP; while :; do sleep 0.1; done";
    let child = Killed::spawn(Command::new("env").args(["--default-signal", "sh", "-c", script]));
    let seen = wait_to_see("both traps", &agent, child.pid(), |process| {
        process.signals_ignored.as_ref().is_some_and(|ignored| ignored.iter().any(|name| name == "HUP"))
    });
    assert_eq!(named(seen.signals_ignored), ["HUP"]);
    // the shell catches others for itself
    let caught = named(seen.signals_caught);
    for (name, is_caught) in [("USR1", true), ("TERM", true), ("HUP", false), ("USR2", false), ("KILL", false)] {
        assert_eq!(caught.iter().any(|caught| caught == name), is_caught, "{name} in {caught:?}");
    }
}

#[test]
fn processor_time_grows_and_the_start_stays() {
    let agent = Agent::start();
    let before = jiff::Timestamp::now();
    let child = Killed::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    let first = wait_to_see("some processor time", &agent, child.pid(), |process| process.cpu_ms >= 20);
    let second = wait_to_see("more of it", &agent, child.pid(), |process| process.cpu_ms >= first.cpu_ms + 20);
    assert_eq!(first.started_at, second.started_at);
    let started: jiff::Timestamp = first.started_at.unwrap().parse().unwrap();
    // the system knows its own start to the second
    let late = started.as_millisecond() - before.as_millisecond();
    assert!((-1500..PATIENCE.as_millis().cast_signed().try_into().unwrap()).contains(&late), "{late} ms");
    assert!(u128::from(second.cpu_ms) < 2 * PATIENCE.as_millis(), "{second:?}");
}

#[test]
fn zombies_and_threads_of_the_kernel_are_shown() {
    let agent = Agent::start();
    let child = Killed::spawn(&mut Command::new("true"));
    let zombie = wait_to_see("the zombie", &agent, child.pid(), |process| process.state.as_deref() == Some("Z"));
    assert_eq!((zombie.name.as_str(), zombie.memory_bytes, zombie.ppid), ("true", 0, std::process::id()));
    assert_eq!(zombie.argv, [""; 0]);
    match look(&agent, 2) {
        Some(kernel) if kernel.name == "kthreadd" => {
            assert_eq!((kernel.argv, kernel.memory_bytes, kernel.ppid), (Vec::new(), 0, 0));
            assert_eq!(kernel.user.as_deref(), Some("root"));
        }
        _ => eprintln!("skipped: this namespace shows no threads of the kernel"),
    }
}

/// What a call leaves behind bears its name.
fn calls_are_named(agent: &Agent) {
    let seconds = processes::unique_seconds();
    let script = format!("sleep {seconds} >/dev/null 2>&1 & setsid sleep {seconds} >/dev/null 2>&1 &");
    let answer = agent.post("/exec", &json!({"argv": ["sh", "-c", script]}));
    let process_id = answer.json["process_id"].as_str().unwrap();
    wait_for("both to sleep", PATIENCE, || processes::with_args(&["sleep", &seconds]).len() == 2);
    let all = snapshot(agent).processes;
    let sleeping: Vec<_> = all.iter().filter(|process| process.argv == ["sleep", &seconds]).collect();
    processes::kill(&processes::with_args(&["sleep", &seconds]));
    assert_eq!(sleeping.len(), 2);
    for process in sleeping {
        assert_eq!(process.process_id.as_deref(), Some(process_id), "{process:?}");
    }
    for pid in [agent.pid(), std::process::id()] {
        assert_eq!(all.iter().find(|process| process.pid == pid).unwrap().process_id, None);
    }
}

#[test]
fn processes_of_a_call_bear_its_name() {
    calls_are_named(&Agent::start());
}

#[test]
fn processes_of_a_call_bear_its_name_without_cgroups_too() {
    calls_are_named(&Agent::with(&["--no-cgroups"]));
}

/// One that has emptied its environment, and what the agent takes it for.
fn unmarked(agent: &Agent) -> (String, Option<String>, String) {
    let seconds = processes::unique_seconds();
    let script = format!("env -i sleep {seconds} >/dev/null 2>&1 &");
    let answer = agent.post("/exec", &json!({"argv": ["sh", "-c", script]}));
    wait_for("it to sleep", PATIENCE, || processes::with_args(&["sleep", &seconds]).len() == 1);
    let pid = processes::with_args(&["sleep", &seconds])[0];
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let seen = look(agent, pid).unwrap().process_id;
    processes::kill(&[pid]);
    (answer.json["process_id"].as_str().unwrap().to_owned(), seen, group)
}

#[test]
fn a_cgroup_tells_the_call_of_a_process_without_a_mark() {
    let agent = Agent::start();
    let (process_id, seen, group) = unmarked(&agent);
    if group.contains(&format!("podlink-{}-", agent.pid())) {
        assert_eq!(seen, Some(process_id));
    } else {
        eprintln!("skipped: cgroups cannot be made here");
    }
    // where there are none it is not known, and nothing is made up
    let (_, seen, _) = unmarked(&Agent::with(&["--no-cgroups"]));
    assert_eq!(seen, None);
}

#[test]
fn an_agent_that_a_call_has_started_is_not_its_own_call() {
    let agent = Agent::launch(&["--no-cgroups"], &[("PODLINK_CALL", "p-of-another-agent")]);
    assert_eq!(look(&agent, agent.pid()).unwrap().process_id, None);
    calls_are_named(&agent);
}

#[test]
fn sockets_are_shown_with_their_owners() {
    let agent = Agent::start();
    let owned = |socket: &SystemSocket, pid: u32| socket.owners.iter().filter(|owner| owner.pid == pid).count();
    let own = std::process::id();

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let found = sockets(&agent, SocketProtocol::Tcp, port);
    // held twice by one process, it has one owner
    let again = tcp.try_clone().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].address.as_str(), owned(&found[0], own)), ("127.0.0.1", 1));
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert!(found[0].owners.iter().any(|owner| owner.pid == own && owner.name == name.trim_end()), "{found:?}");
    // connections to it are none of them
    let connection = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(sockets(&agent, SocketProtocol::Tcp, port).len(), 1);
    assert_eq!(sockets(&agent, SocketProtocol::Tcp, connection.local_addr().unwrap().port()), []);
    drop((again, connection));
    drop(tcp);
    assert_eq!(sockets(&agent, SocketProtocol::Tcp, port), []);

    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = udp.local_addr().unwrap().port();
    let found = sockets(&agent, SocketProtocol::Udp, port);
    assert_eq!((found[0].address.as_str(), owned(&found[0], own), found.len()), ("0.0.0.0", 1, 1), "{found:?}");

    let of_agent = sockets(&agent, SocketProtocol::Tcp, agent.port());
    assert_eq!((of_agent.len(), owned(&of_agent[0], agent.pid())), (1, 1), "{of_agent:?}");
    assert_eq!(of_agent[0].user, look(&agent, agent.pid()).unwrap().user);

    let Ok(six) = TcpListener::bind("[::1]:0") else {
        eprintln!("skipped: no IPv6 here");
        return;
    };
    let found = sockets(&agent, SocketProtocol::Tcp, six.local_addr().unwrap().port());
    assert_eq!((found[0].address.as_str(), owned(&found[0], own), found.len()), ("::1", 1, 1), "{found:?}");
    let any = UdpSocket::bind("[::]:0").unwrap();
    let found = sockets(&agent, SocketProtocol::Udp, any.local_addr().unwrap().port());
    assert_eq!((found[0].address.as_str(), owned(&found[0], own), found.len()), ("::", 1, 1), "{found:?}");
}

#[test]
fn two_processes_that_hold_a_socket_are_both_its_owners() {
    let agent = Agent::start();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    // as its standard input
    let child = Command::new("sleep").arg("600").stdin(std::os::fd::OwnedFd::from(tcp.try_clone().unwrap())).spawn();
    let child = Killed(child.unwrap());
    let mut owners = Vec::new();
    wait_for("the child to be seen", PATIENCE, || {
        owners = sockets(&agent, SocketProtocol::Tcp, port).remove(0).owners;
        owners.iter().any(|owner| (owner.pid, owner.name.as_str()) == (child.pid(), "sleep"))
    });
    assert!(owners.iter().any(|owner| owner.pid == std::process::id()), "{owners:?}");
    assert!(owners.is_sorted_by_key(|owner| owner.pid), "{owners:?}");
}

#[test]
fn processes_that_come_and_go_break_no_snapshot() {
    let agent = Agent::start();
    snapshot(&agent);
    let files = agent.open_files();
    let racing = std::thread::spawn(|| {
        for _ in 0..200 {
            let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
            child.wait().unwrap();
        }
    });
    let mut taken = 0;
    while !racing.is_finished() || taken < 20 {
        let all = snapshot(&agent).processes;
        assert!(all.is_sorted_by(|a, b| a.pid < b.pid));
        for pid in [agent.pid(), std::process::id()] {
            assert!(all.iter().any(|process| process.pid == pid && !process.argv.is_empty()));
        }
        assert!(all.iter().all(|process| process.state.is_some() && process.started_at.is_some()));
        assert_eq!(agent.get("/system/sockets").status, 200);
        taken += 1;
    }
    racing.join().unwrap();
    wait_for("its files to be closed again", PATIENCE, || agent.open_files() <= files);
}

#[test]
fn many_who_ask_at_once_are_all_answered_and_health_is_too() {
    let agent = Agent::start();
    let children: Vec<_> = (0..500).map(|_| Killed::spawn(Command::new("sleep").arg("600"))).collect();
    let begun = Instant::now();
    let all = snapshot(&agent).processes;
    let alone = begun.elapsed();
    for child in &children {
        assert!(all.iter().any(|process| process.pid == child.pid()));
    }
    let threads = agent.threads();
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..32).map(|_| scope.spawn(|| snapshot(&agent).processes.len())).collect();
        while !asking.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let asked = Instant::now();
            assert_eq!(agent.get("/health").status, 200);
            slowest = slowest.max(asked.elapsed());
        }
        for asked in asking {
            assert!(asked.join().unwrap() >= children.len());
        }
    });
    let together = begun.elapsed();
    assert!(agent.threads() <= threads + 4, "one look at a time, not a thread for each");
    // what a look costs, on a machine that does other things too
    let spent = || look(&agent, agent.pid()).unwrap().cpu_ms;
    let before = spent();
    (0..9).for_each(|_| drop(snapshot(&agent)));
    let (between, looks) = (spent(), 10);
    (0..looks).for_each(|_| assert_eq!(agent.get("/system/sockets").status, 200));
    let processes = (between - before) / looks;
    let sockets = (spent() - between).saturating_sub(processes) / looks;
    println!(
        "measured: {} processes in {alone:.1?}, for 32 callers at once {together:.1?} with /health in {slowest:.1?} at \
         worst; of processor time {processes} ms, sockets {sockets} ms; {} KiB of memory at most",
        all.len(),
        agent.peak_memory_kib()
    );
}

#[test]
fn they_need_the_token_and_no_readiness() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("install.done");
    let agent = Agent::launch_with_token(&["--ready-file", gate.to_str().unwrap()], &[], true);
    wait_for("the token to be read", PATIENCE, || agent.get("/whoami").status == 200);
    agent.post("/exec", &json!({"argv": ["true"]})).is_error(503, "not_ready");
    for path in ["/system/processes", "/system/sockets"] {
        let answer = agent.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
        answer.is_stamped();
        agent.http("GET", path).send().is_error(401, "unauthorized");
        agent.authorized("POST", path).send().is_error(405, "method_not_allowed");
        agent.authorized("GET", path).header("podlink-protocol", "2").send().is_error(400, "protocol_version_mismatch");
    }
    let whoami: Whoami = serde_json::from_value(agent.get("/whoami").json).unwrap();
    for feature in ["system.processes", "system.sockets"] {
        assert!(whoami.features.iter().any(|known| known == feature), "{whoami:?}");
    }
    let tokenless = Agent::launch_with_token(&[], &[], false);
    tokenless.get("/system/processes").is_error(503, "not_ready");
}
