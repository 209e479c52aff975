//! `pod doctor` before each cause that can really be made on this machine. Engines are
//! scripts that print what podman prints; the port's other behaviours are fakes, since the real agent has none of them.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use podlink::{
    host::{
        Home, Pod,
        doctor::{DoctorSettings, Report, Status, examine},
    },
    token::{Token, replace_private},
};

use crate::support::{
    Agent, Cli, Port,
    agent::write_private,
    cli::Run,
    fake::{Fake, Reply, health, http, proved, whoami, write_pod},
};

const QUICK: DoctorSettings = DoctorSettings {
    window: Duration::from_millis(400),
    per_try: Duration::from_millis(200),
    pause: Duration::from_millis(50),
    ..DoctorSettings::DEFAULT
};

fn status(report: &Report, name: &str) -> Status {
    report.checks.iter().find(|check| check.name == name).unwrap().status
}

async fn examined(home: &Path) -> Report {
    let home = Home::at(home.to_owned()).unwrap();
    let pod = Pod::load(&home, &"fake".parse().unwrap()).unwrap();
    examine(&home, &pod, &QUICK).await.unwrap()
}

fn seen<'a>(report: &'a Report, name: &str) -> &'a str {
    &report.checks.iter().find(|check| check.name == name).unwrap().seen
}

/// What a port may do, each by a peer that does it; the token is never sent to any of them.
#[tokio::test]
async fn the_ports_behaviours_are_told_apart() {
    for (reply, said) in [
        (Reply::Close, "connected, then closed without an answer"),
        (Reply::Silence, "connected, then silence"),
        (Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()), "something that is not HTTP"),
        (Reply::Bytes(http(200, "", "<html>")), "200, a web page"),
        (Reply::Bytes(http(200, "", &health("copied", "ready"))), "200, an agent's health without the proof"),
        (Reply::Bytes(http(503, "", &health("a", "waiting_for_token"))), "503, the agent waits for its token"),
    ] {
        let (home, port) = (tempfile::tempdir().unwrap(), Port::reserve());
        let token = write_pod(home.path(), port.number(), "");
        let fake = Fake::start_on(port, move |_, _| reply.clone());
        let report = examined(home.path()).await;
        assert!(!report.ok && seen(&report, "port").contains(said), "{said}: {report:?}");
        fake.never_saw(&token);
    }
}

#[tokio::test]
async fn a_reset_is_told_from_a_close() {
    let (home, port) = (tempfile::tempdir().unwrap(), Port::reserve());
    let _token = write_pod(home.path(), port.number(), "");
    let listener = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let resetting = std::thread::spawn(move || {
        // a socket that is closed with something unread in it sends a reset
        while let Ok((stream, _)) = listener.accept() {
            let asked = stream.peek(&mut [0; 1]);
            if matches!(asked, Ok(0) | Err(_)) {
                return;
            }
        }
    });
    let report = examined(home.path()).await;
    assert!(seen(&report, "port").contains("connected, then reset"), "{report:?}");
    drop(std::net::TcpStream::connect(("127.0.0.1", port.number()))); // without a word: ends the thread
    resetting.join().unwrap();
}

/// A boot in progress: what changes within the window is seen to its end.
#[tokio::test]
async fn a_guest_that_comes_up_meanwhile_is_well() {
    let (home, port) = (tempfile::tempdir().unwrap(), Port::reserve());
    let token = write_pod(home.path(), port.number(), "");
    let fake = Fake::start_on(port, move |request, connection| match request.path.as_str() {
        "/health" if connection < 2 => Reply::Close,
        "/health" => Reply::Bytes(proved(request, &token, "a", "ready")),
        "/whoami" => Reply::Bytes(whoami()),
        _ => Reply::Bytes(http(200, "", r#"{"rc":0,"stdout":"","stderr":""}"#)),
    });
    let report = examined(home.path()).await;
    assert_eq!(seen(&report, "port"), "connected, then closed without an answer (2 times); then 200, ready");
    assert!(fake.requests_for("POST", "/exec").len() == 1, "one run");
    assert_eq!(status(&report, "exec"), Status::Ok, "{report:?}");
}

fn doctor(home: &Path) -> Cli {
    Cli::new(["pod", "doctor", "--pod", "fake"]).home(home)
}

/// The last line, which is the verdict.
#[track_caller]
fn verdict(run: &Run) -> &str {
    run.stdout.lines().last().unwrap()
}

#[test]
fn a_real_local_pod_from_absent_to_well_and_back() {
    let (home, port) = (tempfile::tempdir().unwrap(), Port::reserve());
    let number = port.number().to_string();
    let podlink = |args: &[&str]| Cli::new(args).home(home.path()).env("PODLINK_POD", "fake");
    drop(podlink(&["setup", "--engine", "local", "--agent-port", &number]).run().exits(0));
    let run = doctor(home.path()).run().exits(1);
    assert_eq!(verdict(&run), "the pod's agent does not run: `podlink pod up --pod fake`");

    drop(podlink(&["pod", "up"]).run().exits(0));
    let run = doctor(home.path()).run();
    let json = podlink(&["pod", "doctor", "--json"]).run();

    let file = home.path().join("fake/compose.yaml");
    let settings = home.path().join("fake/pod.yaml");
    let wide = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&settings, wide).unwrap();
    let open = doctor(home.path()).run();
    std::fs::set_permissions(&settings, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

    let token_file = home.path().join("fake/agent_token.txt");
    std::fs::rename(&token_file, home.path().join("kept")).unwrap();
    let missing = doctor(home.path()).run();
    write_private(&token_file, &Token::generate().unwrap().expose());
    let other = doctor(home.path()).run();
    drop(podlink(&["pod", "down"]).run().exits(0));

    assert_eq!(verdict(&run.exits(0)), "all is well: the pod fake serves calls");
    let json = json.exits(0).json();
    assert_eq!((&json["ok"], json["checks"].as_array().unwrap().len()), (&true.into(), 12), "{json}");
    assert_eq!(
        json["checks"][0],
        serde_json::json!({"name": "engine", "status": "ok", "seen": json["checks"][0]["seen"]})
    );
    assert!(!file.exists(), "a local pod needs none");
    let open = open.exits(1);
    assert_eq!(verdict(&open), format!("others may look into {0} (mode 0644): `chmod 600 {0}`", settings.display()));
    assert!(verdict(&missing.exits(1)).contains("agent_token.txt is missing: `podlink setup --pod fake`"));
    let other = other.exits(1);
    assert!(
        verdict(&other).starts_with("token mismatch") && verdict(&other).contains("podlink setup"),
        "{}",
        other.stdout
    );
}

#[test]
fn a_real_agent_that_waits_for_a_gate_says_so() {
    let gate = tempfile::tempdir().unwrap();
    let gate = gate.path().join("install.done");
    let agent = Agent::launch_with_token(&["--ready-file", gate.to_str().unwrap()], &[], true);
    let home = tempfile::tempdir().unwrap();
    let _other = write_pod(home.path(), agent.port(), "");
    replace_private(&home.path().join("fake/agent_token.txt"), agent.token().as_bytes()).unwrap();
    let begun = Instant::now();
    let run = doctor(home.path()).run().exits(1);
    assert!(begun.elapsed() < Duration::from_secs(15));
    // to a local pod an agent that it did not start is a stranger that holds its token
    assert!(verdict(&run).contains(gate.to_str().unwrap()) && verdict(&run).contains("wait-ready"), "{}", run.stdout);
}

#[test]
fn an_agent_whose_slots_are_taken_is_busy_and_not_broken() {
    let agent = Agent::with(&["--exec-slots", "1"]);
    let home = tempfile::tempdir().unwrap();
    let _other = write_pod(home.path(), agent.port(), "");
    replace_private(&home.path().join("fake/agent_token.txt"), agent.token().as_bytes()).unwrap();
    let busy = Cli::new(["pod", "exec", "--pod", "fake", "echo begun; exec sleep 600"]).home(home.path());
    let mut busy = busy.command().stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(busy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    let run = doctor(home.path()).run();
    // what else is not as it should be with a pod that was not set up is said before
    let exec = run.stdout.lines().find(|line| line.contains(" exec ")).unwrap();
    assert!(exec.starts_with('!') && exec.contains("every slot is taken"), "{}", run.stdout);
    let run = Cli::new(["pod", "exec", "--pod", "fake", "--no-queue", "true"]).home(home.path()).run().exits(125);
    assert!(run.stderr.contains("`podlink pod ps --pod fake` shows what runs"), "{}", run.stderr);
    busy.kill().unwrap();
    busy.wait().unwrap();
}

#[test]
fn a_port_that_another_program_holds_names_it() {
    let stranger = Agent::start();
    let home = tempfile::tempdir().unwrap();
    let token = write_pod(home.path(), stranger.port(), "");
    let run = doctor(home.path()).run().exits(1);
    let expected = format!("the agent's port {} is taken by podlink (pid {})", stranger.port(), stranger.pid());
    assert!(verdict(&run).starts_with(&expected) && verdict(&run).contains("--agent-port"), "{}", run.stdout);
    assert!(!stranger.log().contains(token.expose().as_str()));
}

#[test]
fn a_pod_that_is_not_there_cannot_be_examined() {
    let home = tempfile::tempdir().unwrap();
    let run = doctor(home.path()).run().exits(125);
    assert!(run.stderr.contains("podlink setup --pod fake"), "{}", run.stderr);
}

/// A pod in a podman that is a script: it prints what the test says.
struct FakePodman {
    home: tempfile::TempDir,
    programs: tempfile::TempDir,
    port: Option<Port>,
    number: u16,
}

impl FakePodman {
    fn new() -> Self {
        let port = Port::reserve();
        let pod = Self {
            home: tempfile::tempdir().unwrap(),
            programs: tempfile::tempdir().unwrap(),
            number: port.number(),
            port: Some(port),
        };
        pod.program("podman", "case $1 in\n--version) echo podman version 4.3.1;;\n*) cat \"$0.$1\";;\nesac\n");
        pod.program("podman-compose", "echo podman-compose version 1.0.3\n");
        for name in ["ps", "inspect", "exec"] {
            pod.prints(name, "");
        }
        let number = pod.number.to_string();
        let args = [
            "setup",
            "--pod",
            "fake",
            "--engine",
            "podman",
            "--guest",
            "linux",
            "--image",
            "x",
            "--agent-port",
            &number,
        ];
        drop(pod.cli(&args).run().exits(0));
        pod
    }

    fn program(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.programs.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn prints(&self, command: &str, text: &str) {
        std::fs::write(self.programs.path().join(format!("podman.{command}")), text).unwrap();
    }

    fn cli(&self, args: &[&str]) -> Cli {
        Cli::new(args).home(self.home.path()).env("PATH", format!("{}:/usr/bin:/bin", self.programs.path().display()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join("fake").join(name)
    }

    /// Has podman tell of a container.
    fn has(&self, status: &str, env: &str, published: bool) {
        self.prints("ps", "0123456789abcdef\n");
        let binding = format!(r#"[{{"HostIp":"127.0.0.1","HostPort":"{}"}}]"#, self.number);
        let ports = if published { &binding } else { "null" };
        self.prints("inspect", &format!(
            r#"[{{"Id":"0123456789abcdef","State":{{"Status":"{status}","ExitCode":137,"StartedAt":"2020-01-01T00:00:00Z"}},"Config":{{"Env":["PASSWORD=hunter2",{env}]}},"NetworkSettings":{{"Ports":{{"8765/tcp":{ports}}}}}}}]"#,
        ));
    }

    /// Has the container look so from inside.
    fn shows(&self, forward: bool, programs: &str) {
        let socket =
            "   0: 00000000:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n";
        self.prints("exec", &format!("sl\n{}---\n  eth0: 0\n---\n{programs}\n", if forward { socket } else { "" }));
    }

    #[track_caller]
    fn verdict_has(&self, parts: &[&str]) -> Run {
        let run = self.cli(&["pod", "doctor", "--pod", "fake"]).run().exits(1);
        for part in parts {
            assert!(verdict(&run).contains(part), "no {part:?} in {}", run.stdout);
        }
        assert!(!run.stdout.contains("hunter2"), "{}", run.stdout);
        run
    }
}

#[test]
fn the_engines_states_lead_to_their_verdicts() {
    type Case = (fn(&FakePodman), &'static [&'static str]);
    const ENV: &str = r#""USER_PORTS=8765""#;
    const CASES: [Case; 6] = [
        (|_| {}, &["the pod has no container: `podlink pod up --pod fake`"]),
        (|pod| pod.has("exited", ENV, true), &["ended with code 137", "podman logs 0123456789ab"]),
        (|pod| pod.has("paused", ENV, true), &["the pod is paused: `podlink pod resume --pod fake`"]),
        (|pod| pod.has("running", ENV, false), &["does not publish", "older file"]),
        (
            |pod| pod.program("podman-compose", "echo broken >&2; exit 1\n"),
            &["no container and podman's compose front end does not work", "broken", "install podman-compose"],
        ),
        (
            |pod| pod.program("podman", "case $1 in --version) echo podman version 4.3.1;; *) sleep 60;; esac\n"),
            &["podman ps", "did not end within 4 s"],
        ),
    ];
    std::thread::scope(|scope| {
        for (breaks, parts) in CASES {
            scope.spawn(move || {
                let pod = FakePodman::new();
                breaks(&pod);
                let run = pod.verdict_has(parts);
                assert!(run.took < Duration::from_secs(15), "{:?}", run.took);
            });
        }
    });
}

/// Legs broken in the files themselves; the peers do what the measured chains do.
#[test]
fn a_leg_taken_out_of_the_file_is_named_with_its_line() {
    let mut pod = FakePodman::new();
    let good = std::fs::read_to_string(pod.file("compose.yaml")).unwrap();
    let edit = |text: &str| replace_private(&pod.file("compose.yaml"), text.as_bytes()).unwrap();
    let line = format!("127.0.0.1:{}:8765/tcp", pod.number);

    edit(&good.replace(&line, "127.0.0.1:1:8765/tcp"));
    pod.has("running", r#""USER_PORTS=8765""#, false);
    pod.shows(true, "qemu-system-x86");
    drop(pod.verdict_has(&["the host's leg is missing", &format!("`- \"{line}\"`")]));

    edit(&good.replace("USER_PORTS", "OTHER"));
    pod.has("running", r#""OTHER=8765""#, true);
    pod.shows(false, "qemu-system-x86");
    drop(pod.verdict_has(&["the guest's leg is missing", "network mode slirp", "`USER_PORTS: \"8765\"`"]));

    edit(&good);
    let mine = "services:\n  guest:\n    environment:\n      USER_PORTS: \"445\"\n";
    std::fs::write(pod.file("compose.override.yaml"), mine).unwrap();
    pod.has("running", r#""USER_PORTS=445""#, true);
    drop(pod.verdict_has(&["compose.override.yaml", "`USER_PORTS: \"8765,445\"`"]));
    std::fs::remove_file(pod.file("compose.override.yaml")).unwrap();

    // the guest turns connections away, or swallows them; this test's own process stands where the engine would
    pod.has("running", r#""USER_PORTS=8765""#, true);
    pod.shows(true, "qemu-system-x86");
    let swallows = Arc::new(AtomicBool::new(false));
    let told = swallows.clone();
    let _fake = Fake::start_on(pod.port.take().unwrap(), move |_, _| {
        if told.load(Ordering::SeqCst) { Reply::Silence } else { Reply::Close }
    });
    drop(pod.verdict_has(&["the guest's loopback only", "`podlink agent serve --listen 0.0.0.0:8765`"]));
    swallows.store(true, Ordering::SeqCst);
    drop(pod.verdict_has(&["its firewall drops port 8765", "ufw allow 8765/tcp"]));
}

/// Doctor looks at the agent's port and at nothing else: remote desktop's listener is left alone.
#[test]
fn no_other_port_is_touched() {
    let pod = FakePodman::new();
    let settings = std::fs::read_to_string(pod.file("pod.yaml")).unwrap();
    let rdp = Fake::start(|_, _| Reply::Close);
    let line = settings.lines().find(|line| line.trim_start().starts_with("rdp:")).unwrap();
    let moved = settings.replace(line, &format!("  rdp: {}", rdp.port()));
    replace_private(&pod.file("pod.yaml"), moved.as_bytes()).unwrap();
    pod.program("xfreerdp", "touch \"$0.ran\"\n");
    pod.has("running", r#""USER_PORTS=8765""#, true);
    pod.shows(true, "qemu-system-x86");
    drop(pod.verdict_has(&["pod restart"]));
    assert_eq!(rdp.connections(), 0);
    assert!(!pod.programs.path().join("xfreerdp.ran").exists());
}
