//! Pods in real containers with real guests: podman, QEMU, a small Linux, our agent. See `tests/vm/README.md`.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use podlink::{
    host::{AgentClient, ClientSettings, Home, Pod, PodName},
    protocol::{ExecRequest, TimeoutSec},
    token::{STAGED_NAME, TOKEN_FILE, replace_private},
};

use super::{Cli, Port, cli::Run, wait_for};

const IMAGE: &str = "localhost/podlink-test-vm:latest";

/// How many tests have guests at one time: an emulated guest fills a core.
const AT_ONCE: usize = 2;

/// Longer than a guest takes to boot on a busy machine.
const BOOT: Duration = Duration::from_secs(90);

/// The right to have guests, and all that they are made of.
#[must_use]
#[derive(Debug)]
pub struct Lab {
    _slot: File,
}

impl Lab {
    /// Builds what is not built yet. `None` where the VM tests are not asked for, said on stderr.
    pub fn open() -> Option<Self> {
        if std::env::var("PODLINK_TEST_VM").as_deref() != Ok("1") {
            eprintln!("SKIPPED: the VM tests run with PODLINK_TEST_VM=1, or by `scripts/test vm`");
            return None;
        }
        script("build", &[]);
        std::fs::create_dir_all(out().join("pods")).unwrap();
        // what tests that were killed have left; a test that is about to end may be cleaning the same
        drop(Command::new(scripts().join("clean")).output());
        let deadline = Instant::now() + Duration::from_mins(10);
        loop {
            for slot in 0..AT_ONCE {
                let file = File::create(out().join(format!("slot.{slot}"))).unwrap();
                if file.try_lock().is_ok() {
                    return Some(Self { _slot: file });
                }
            }
            assert!(Instant::now() < deadline, "other tests have all {AT_ONCE} slots for guests");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A pod to be made; `name` tells it apart in this test.
    pub fn pod(&self, name: &str) -> Spec<'_> {
        Spec {
            _lab: self,
            name: name.to_owned(),
            network: "slirp",
            conf: String::new(),
            install: None,
            without: None,
            publishes_rdp: false,
        }
    }
}

/// One of the two forwards that lead to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// From the container into the guest.
    UserPorts,
    /// From the host into the container.
    Published,
}

/// What a pod is to be like.
#[must_use]
#[derive(Debug)]
pub struct Spec<'a> {
    _lab: &'a Lab,
    name: String,
    network: &'static str,
    conf: String,
    install: Option<String>,
    without: Option<Leg>,
    publishes_rdp: bool,
}

impl Spec<'_> {
    /// The image's `NETWORK`.
    pub fn network(mut self, network: &'static str) -> Self {
        self.network = network;
        self
    }

    /// A line for the guest: `AGENT=no`, `LISTEN=…`, `FIREWALL=drop`.
    pub fn conf(mut self, line: &str) -> Self {
        self.conf += line;
        self.conf.push('\n');
        self
    }

    /// The installation that the guest runs before it is ready.
    pub fn install(mut self, script: &str) -> Self {
        self.install = Some(script.to_owned());
        self
    }

    /// With the guest's remote desktop published too, by the user's own file beside `compose.yaml`.
    pub fn publish_rdp(mut self) -> Self {
        self.publishes_rdp = true;
        self
    }

    /// With a leg taken out of `compose.yaml`.
    pub fn without(mut self, leg: Leg) -> Self {
        self.without = Some(leg);
        self
    }

    /// Makes the pod and starts it. Does not wait for the guest.
    pub fn up(self) -> Vm {
        let home = tempfile::tempdir().unwrap();
        let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
        let pod = format!("vmtest-{}", self.name);
        let [agent, rdp, web] = ports.each_ref().map(|port| port.number().to_string());
        let setup = ["--engine", "podman", "--guest", "linux", "--image", IMAGE, "--network", self.network];
        let size = ["--cpus", "1", "--ram", "256M", "--disk", "16M"];
        let at = ["--agent-port", &agent, "--rdp-port", &rdp, "--web-port", &web];
        drop(podlink(home.path(), &pod, &["setup"], &[&setup[..], &size, &at].concat()).run().exits(0));
        let project = load(home.path(), &pod).project().to_owned();
        let dir = home.path().join(&pod);
        if !self.conf.is_empty() {
            std::fs::write(dir.join("oem/vm-test.conf"), &self.conf).unwrap();
        }
        if let Some(install) = &self.install {
            std::fs::write(dir.join("oem/install.sh"), install).unwrap();
        }
        if self.publishes_rdp {
            let text = format!("services:\n  guest:\n    ports: [\"127.0.0.1:{rdp}:3389/tcp\"]\n");
            std::fs::write(dir.join("compose.override.yaml"), text).unwrap();
        }
        if let Some(leg) = self.without {
            remove_leg(&dir.join("compose.yaml"), leg);
        }
        // before the engine is told anything: who finds the file unlocked cleans up after us
        let record = File::create(out().join("pods").join(&project)).unwrap();
        record.lock().unwrap();
        // where the guest's remote desktop is not published, we listen on its port ourselves: nobody may come
        let rdp_listener = (!self.publishes_rdp).then(|| {
            let listener = TcpListener::bind(("127.0.0.1", ports[1].number())).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let vm = Vm { home, pod, project, ports, begun: Instant::now(), rdp_listener, _record: record };
        vm.up();
        vm
    }
}

/// Takes out the line that is the leg.
fn remove_leg(compose: &Path, leg: Leg) {
    let text = std::fs::read_to_string(compose).unwrap();
    let is_leg = |line: &&str| match leg {
        Leg::UserPorts => line.contains("USER_PORTS"),
        Leg::Published => line.contains(":8765/tcp"),
    };
    assert_eq!(text.lines().filter(is_leg).count(), 1, "{text}");
    let rest: String = text.lines().filter(|line| !is_leg(line)).flat_map(|line| [line, "\n"]).collect();
    replace_private(compose, rest.as_bytes()).unwrap();
}

/// A pod with a guest; gone with all that belongs to it when dropped.
#[must_use]
#[derive(Debug)]
pub struct Vm {
    home: tempfile::TempDir,
    pod: String,
    project: String,
    ports: [Port; 3],
    begun: Instant,
    rdp_listener: Option<TcpListener>,
    _record: File,
}

/// What a program meets that asks for `/health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// Nothing listens.
    Refused,
    /// The connection was made, then ended without a word, orderly or by a reset.
    Closed,
    /// No answer.
    Silent,
    /// An answer, with this status.
    Http(u16),
}

impl Vm {
    /// `podlink pod up`.
    pub fn up(&self) {
        drop(self.podlink("up", &[]).run().exits(0));
    }

    /// `podlink pod down`.
    pub fn down(&self) {
        drop(self.podlink("down", &[]).run().exits(0));
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join(&self.pod)
    }

    pub fn agent_port(&self) -> u16 {
        self.ports[0].number()
    }

    pub fn rdp_port(&self) -> u16 {
        self.ports[1].number()
    }

    pub fn web_port(&self) -> u16 {
        self.ports[2].number()
    }

    /// `podlink pod COMMAND --pod …` with these arguments.
    pub fn podlink(&self, command: &str, args: &[&str]) -> Cli {
        podlink(self.home.path(), &self.pod, &["pod", command], args)
    }

    /// `podlink pod wait-ready`, which has to end well; returns the time since the pod was asked to start.
    #[track_caller]
    pub fn wait_ready(&self) -> Duration {
        let timeout = BOOT.as_secs().to_string();
        let run = self.podlink("wait-ready", &["--timeout", &timeout]).run();
        assert_eq!(run.code, Some(0), "{}\n{}\n{}", run.stdout, run.stderr, self.console());
        self.begun.elapsed()
    }

    /// `podlink pod doctor`: it ends with this code, and its last line says all of these.
    #[track_caller]
    pub fn doctor(&self, code: i32, says: &[&str]) {
        let run = self.podlink("doctor", &[]).run();
        let verdict = run.stdout.lines().last().unwrap_or_default();
        println!("vm: doctor: {verdict}");
        let all_said = says.iter().all(|word| verdict.contains(word));
        assert!(run.code == Some(code) && all_said, "{says:?} {:?}\n{}\n{}", run.code, run.stdout, run.stderr);
    }

    /// Asserts that no command so far has started a viewer of remote desktops, or connected to their port.
    #[track_caller]
    pub fn nobody_opened_a_desktop(&self) {
        if let Some(listener) = &self.rdp_listener {
            let met = listener.accept().map(|(_, peer)| peer);
            assert!(met.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "somebody connected");
        }
        let ran = std::fs::read_to_string(viewers().join("ran")).unwrap_or_default();
        assert!(ran.is_empty(), "started: {ran}");
    }

    /// `podlink pod exec SCRIPT`.
    pub fn exec(&self, script: &str) -> Run {
        self.podlink("exec", &[script]).run()
    }

    /// The library's client of this pod.
    pub fn client(&self) -> AgentClient {
        AgentClient::for_pod(&load(self.home.path(), &self.pod), ClientSettings::DEFAULT).unwrap()
    }

    /// Waits for a line on the guest's console.
    #[track_caller]
    pub fn wait_for_console(&self, text: &str) {
        wait_for(&format!("{text:?} on the guest's console"), BOOT, || self.console().contains(text));
    }

    /// What the container and the guest's console have printed.
    pub fn console(&self) -> String {
        self.container().map_or_else(String::new, |id| podman(&["logs", &id]))
    }

    /// The container's id.
    pub fn container(&self) -> Option<String> {
        let filter = format!("label=io.podlink.project={}", self.project);
        podman(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().next().map(str::to_owned)
    }

    /// Stops all processes of the container where they are.
    pub fn pause(&self) {
        podman(&["pause", &self.container().unwrap()]);
    }

    pub fn resume(&self) {
        podman(&["unpause", &self.container().unwrap()]);
    }

    /// SIGKILL to QEMU.
    pub fn kill_machine(&self) {
        let pid = podman(&["inspect", "-f", "{{.State.Pid}}", &self.container().unwrap()]);
        let pid = pid.trim().parse().unwrap();
        assert!(pid > 1);
        let args = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(args.starts_with("qemu-system-x86_64"), "{args}");
        super::processes::kill(&[pid]);
    }

    /// Gives the host's side another token, as `setup` does where both copies are lost. The guest is not told.
    pub fn change_token(&self) {
        for file in [self.dir().join(TOKEN_FILE), self.dir().join("oem").join(STAGED_NAME)] {
            std::fs::remove_file(file).unwrap();
        }
        let run = podlink(self.home.path(), &self.pod, &["setup"], &["--json"]).run().exits(0);
        assert_eq!(run.json()["token"], "replaced");
    }

    /// What a request for `/health` meets now.
    pub fn symptom(&self) -> Symptom {
        symptom(self.agent_port())
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the console of {}:\n{}", self.pod, self.console());
        }
        let cleaned = Command::new(scripts().join("clean")).arg(&self.project).output().unwrap();
        let said = String::from_utf8_lossy(&cleaned.stderr);
        if !std::thread::panicking() {
            assert!(cleaned.status.success(), "could not clean up {}: {said}", self.project);
        }
    }
}

/// `podlink COMMAND --pod POD` with these arguments.
fn podlink(home: &Path, pod: &str, command: &[&str], args: &[&str]) -> Cli {
    let path = std::env::join_paths(
        std::iter::once(viewers()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let cli = Cli::new([command, &["--pod", pod], args].concat()).home(home).env("PATH", path.unwrap());
    podman_env().into_iter().fold(cli, |cli, (key, value)| cli.env(key, value))
}

/// A folder with programs of remote desktop viewers' names, which only record that somebody ran them.
fn viewers() -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = out().join("viewers");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["xfreerdp", "xfreerdp3", "wlfreerdp", "rdesktop", "remmina", "vncviewer", "xdg-open"] {
        let path = folder.join(name);
        if !path.exists() {
            // under another name first: nobody runs half a program
            let new = folder.join(format!(".{name}.{}", std::process::id()));
            std::fs::write(&new, "#!/bin/sh\necho \"$0 $*\" >>\"${0%/*}/ran\"\n").unwrap();
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(&new, &path).unwrap();
        }
    }
    folder
}

fn load(home: &Path, pod: &str) -> Pod {
    Pod::load(&Home::at(home.to_owned()).unwrap(), &pod.parse::<PodName>().unwrap()).unwrap()
}

/// A call of a program with its arguments.
pub fn argv(words: &[&str], timeout: f64) -> ExecRequest {
    ExecRequest {
        argv: Some(words.iter().map(|word| (*word).to_owned()).collect()),
        timeout_sec: Some(TimeoutSec::Seconds(timeout)),
        ..ExecRequest::default()
    }
}

fn symptom(port: u16) -> Symptom {
    let patience = Duration::from_millis(1500);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = match TcpStream::connect_timeout(&address, patience) {
        Ok(stream) => stream,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Symptom::Refused,
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Symptom::Silent,
        Err(error) => panic!("{error}"),
    };
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut answer = [0; 4096];
    match stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").and_then(|()| stream.read(&mut answer)) {
        Ok(0) => Symptom::Closed,
        Ok(count) => {
            let text = String::from_utf8_lossy(&answer[..count]).into_owned();
            Symptom::Http(text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect(&text))
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Symptom::Silent
        }
        Err(_) => Symptom::Closed,
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm")
}

fn out() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm")
}

/// podman as these tests use it.
fn podman_env() -> [(&'static str, PathBuf); 2] {
    [("CONTAINERS_CONF", out().join("containers.conf")), ("CONTAINERS_STORAGE_CONF", out().join("storage.conf"))]
}

/// Runs podman, which has to succeed, and returns what it printed.
#[track_caller]
fn podman(args: &[&str]) -> String {
    script("podman", args)
}

/// Runs a script beside the tests, which has to succeed, and returns what it printed; of `logs` both streams.
#[track_caller]
fn script(name: &str, args: &[&str]) -> String {
    let output = Command::new(scripts().join(name)).args(args).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{name} {args:?}: {stdout}{stderr}");
    if name == "build" {
        print!("{stdout}");
    }
    stdout + if args.first() == Some(&"logs") { &stderr } else { "" }
}
