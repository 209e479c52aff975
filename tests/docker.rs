//! A pod's life in real docker, in a daemon of the test's own.
//!
//! Asked for by `PODLINK_TEST_DOCKER=1`: it needs root, and a daemon is more than a test may start unasked.

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use podlink::host::{Home, PodName};

use crate::support::{
    Cli, Port, podman,
    port::on_loopback_alone,
    processes::{children_of, kill},
    wait_for,
};

const IMAGE: &str = "podlink-test-engine:latest";
const LONG: Duration = Duration::from_mins(1);

/// A docker daemon that leaves the machine's firewall and bridges alone; ended when dropped.
struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Option<Self> {
        if std::env::var("PODLINK_TEST_DOCKER").as_deref() != Ok("1") {
            eprintln!("skipped: the docker test runs with PODLINK_TEST_DOCKER=1, as root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let log = File::create(at("log")).unwrap();
        let child = Command::new("dockerd")
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(["--iptables=false", "--bridge=none", "-H"])
            .arg(format!("unix://{}", at("sock").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("dockerd is installed where this test is asked for");
        let mut daemon = Self { child, folder };
        wait_for("the docker daemon", LONG, || {
            let log = || std::fs::read_to_string(daemon.folder.path().join("log")).unwrap_or_default();
            assert!(daemon.child.try_wait().unwrap().is_none(), "dockerd ended: {}", log());
            daemon.docker(&["info"]).status.success()
        });
        Some(daemon)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("sock").display())
    }

    fn docker(&self, args: &[&str]) -> Output {
        Command::new("docker").args(args).env("DOCKER_HOST", self.host()).output().unwrap()
    }

    fn lines(&self, args: &[&str]) -> Vec<String> {
        let output = self.docker(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn cli(&self, home: &Path, args: &[&str]) -> Cli {
        Cli::new(args).home(home).env("DOCKER_HOST", self.host()).env("HOME", self.folder.path())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for container in self.lines(&["ps", "-a", "-q"]) {
            drop(self.docker(&["rm", "-f", &container]));
        }
        drop(self.docker(&["network", "prune", "-f"]));
        // its own containerd first ends with it, unless it has to be killed
        let children = children_of(self.child.id());
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = std::time::Instant::now() + LONG;
        while matches!(self.child.try_wait(), Ok(None)) {
            if std::time::Instant::now() > deadline {
                drop(self.child.kill());
                drop(self.child.wait());
                kill(&children);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_pod_lives_in_docker_as_in_podman() {
    let Some(daemon) = Daemon::start() else { return };
    let archive = podman::archive(daemon.folder.path());
    let import = ["import", "--change", "ENTRYPOINT [\"/entry.sh\"]", archive.to_str().unwrap(), IMAGE];
    drop(daemon.lines(&import));
    let home = daemon.folder.path().join("home");
    let (agent, web) = (Port::reserve(), Port::reserve());
    let numbers = [&agent, &web].map(|port| port.number().to_string());
    let flags = ["--engine", "docker", "--guest", "linux", "--image", IMAGE];
    let ports = ["--agent-port", &numbers[0], "--web-port", &numbers[1]];
    let all: Vec<&str> = ["setup", "--pod", "dock"].into_iter().chain(flags).chain(ports).collect();
    drop(daemon.cli(&home, &all).run().exits(0));
    let pod = |words: &[&str]| {
        let all: Vec<&str> = ["pod"].iter().chain(words).chain(&["--pod", "dock"]).copied().collect();
        daemon.cli(&home, &all).run()
    };
    let state = || pod(&["status", "--json"]).exits(0).json()["state"].as_str().unwrap().to_owned();
    let containers = || daemon.lines(&["ps", "-a", "-q"]);

    assert_eq!(state(), "gone");
    let marker = home.join("dock/storage/disk.img");
    std::fs::write(&marker, "the guest's").unwrap();
    assert_eq!(pod(&["up", "--json"]).exits(0).json()["started"], true);
    assert_eq!(state(), "starting");
    on_loopback_alone(agent.number());
    on_loopback_alone(web.number());
    let made = containers();
    assert_eq!(pod(&["up", "--json"]).exits(0).json()["started"], false);
    assert_eq!(containers(), made);

    drop(daemon.cli(&home, &["setup", "--pod", "dock", "--ram", "5G"]).run().exits(0));
    assert_eq!(pod(&["up", "--json"]).exits(0).json()["recreated"], true);
    assert_ne!(containers(), made);
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "the guest's");

    wait_for("the guest's hello", LONG, || pod(&["logs"]).stdout.contains("hello from the guest"));
    drop(pod(&["pause"]).exits(0));
    assert_eq!(state(), "paused");
    drop(pod(&["resume"]).exits(0));
    drop(pod(&["pause"]).exits(0));
    drop(pod(&["restart"]).exits(0));
    assert_eq!(state(), "starting");
    drop(pod(&["down"]).exits(0));
    assert_eq!(state(), "gone");
    assert!(containers().is_empty());
    let project = Home::at(home.clone()).unwrap().project(&"dock".parse::<PodName>().unwrap());
    let networks = daemon.lines(&["network", "ls", "--format", "{{.Name}}"]);
    assert!(!networks.iter().any(|name| name.contains(&project)), "{networks:?}");
}
