//! Pods in real containers of podman, with a guest that is a shell script.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use podlink::host::{Home, PodName};

use super::{Cli, Port};

/// The image's name, by what is in it: one that is there already need not be made again.
fn image() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        use sha2::Digest as _;
        format!("localhost/podlink-test-engine:{}", hex::encode(&sha2::Sha256::digest(ENTRY)[..6]))
    })
}

/// What runs in the container: says hello, takes its time to stop where it is told to, and notes whoever connects to
/// the port of remote desktop.
const ENTRY: &str = r#"#!/bin/sh
trap 'echo stopping; sleep "${STOP_AFTER:-0}"; echo stopped >> /storage/stopped; exit 0' TERM
( while nc -l -p 3389 > /dev/null; do echo connected >> /storage/rdp; done ) &
printf '\033[1;34mhello from the guest\033[0m with %s\n' "${GREETING:-nothing}"
while :; do sleep 0.1; done
"#;

/// What podman needs where it may not raise limits or finds control groups that crun does not know.
const CONF: &str = r#"[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"#;

/// A home of its own for pods in podman; takes what is left of them away when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct Podman {
    home: tempfile::TempDir,
    programs: tempfile::TempDir,
}

/// A pod's ports.
#[derive(Debug)]
pub struct Ports {
    pub agent: Port,
    pub web: Port,
    pub rdp: Port,
}

impl Podman {
    /// `None`, said on stderr, where podman or its compose is not installed.
    pub fn find() -> Option<Self> {
        for program in ["podman", "podman-compose"] {
            if which(program).is_none() {
                eprintln!("skipped: {program} is not installed");
                return None;
            }
        }
        let _ = environment();
        let (home, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tripwire = format!("#!/bin/sh\necho \"$0 $*\" >> {}/opened\n", programs.path().display());
        for name in ["xfreerdp", "xfreerdp3", "wlfreerdp", "sdl-freerdp", "rdesktop", "remmina"] {
            executable(&programs.path().join(name), &tripwire);
        }
        Some(Self { home, programs })
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Makes a pod; its ports stay reserved while the value lives.
    pub fn setup(&self, pod: &str, guest: &str) -> Ports {
        let ports = Ports { agent: Port::reserve(), web: Port::reserve(), rdp: Port::reserve() };
        let numbers = [&ports.agent, &ports.web, &ports.rdp].map(|port| port.number().to_string());
        let args = ["setup", "--pod", pod, "--engine", "podman", "--guest", guest, "--image", image()];
        let flags = ["--agent-port", &numbers[0], "--web-port", &numbers[1], "--rdp-port", &numbers[2]];
        drop(self.cli(args.into_iter().chain(flags)).run().exits(0));
        ports
    }

    /// `podlink` with these arguments.
    pub fn cli<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cli {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        let cli = Cli::new(args).home(self.home()).env("PATH", path);
        environment().iter().fold(cli, |cli, (key, value)| cli.env(key, value))
    }

    /// `podlink pod …` on a pod.
    pub fn pod(&self, pod: &str, args: &[&str]) -> Cli {
        self.cli(["pod"].into_iter().chain(args.iter().copied()).chain(["--pod", pod]))
    }

    pub fn dir(&self, pod: &str) -> PathBuf {
        self.home().join(pod)
    }

    pub fn storage(&self, pod: &str) -> PathBuf {
        self.dir(pod).join("storage")
    }

    /// The ids of a pod's containers.
    pub fn containers(&self, pod: &str) -> Vec<String> {
        ids(&["ps", "-a", "-q", "--no-trunc", "--filter", &label("io.podlink.project", &self.project(pod))])
    }

    /// The names of its networks, told by name rather than by what `down` goes by.
    pub fn networks(&self, pod: &str) -> Vec<String> {
        let mut names = ids(&["network", "ls", "--format", "{{.Name}}"]);
        names.retain(|name| name.contains(&self.project(pod)));
        names
    }

    /// What `podman inspect` prints of the pod's container in this form.
    pub fn inspect(&self, pod: &str, format: &str) -> String {
        let container = self.containers(pod).pop().expect("a container");
        text(&podman(&["inspect", "--format", format, &container]))
    }

    /// What the pod's own programs for remote desktop were called with.
    pub fn opened(&self) -> String {
        std::fs::read_to_string(self.programs.path().join("opened")).unwrap_or_default()
    }

    fn project(&self, pod: &str) -> String {
        Home::at(self.home().to_owned()).unwrap().project(&pod.parse::<PodName>().unwrap())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for pod in Home::at(self.home().to_owned()).unwrap().pods() {
            for container in self.containers(pod.as_str()) {
                drop(podman(&["rm", "-f", "-t", "0", &container]));
            }
            for network in self.networks(pod.as_str()) {
                drop(podman(&["network", "rm", &network]));
            }
        }
    }
}

fn label(name: &str, value: &str) -> String {
    format!("label={name}={value}")
}

fn ids(args: &[&str]) -> Vec<String> {
    let output = podman(args);
    assert!(output.status.success(), "{output:?}");
    text(&output).lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn podman(args: &[&str]) -> Output {
    let environment = environment().iter().map(|(key, value)| (key, value));
    Command::new("podman").args(args).envs(environment).output().unwrap()
}

/// Writes a program.
///
/// By another process: a file that this one has open for writing is, for a moment, open in what other tests' threads
/// start too, and cannot be run then.
pub fn executable(path: &Path, text: &str) {
    let mut install =
        Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}

/// Where a program is.
pub fn which(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What podman is given to work on this machine.
fn environment() -> &'static [(String, String)] {
    static ENVIRONMENT: OnceLock<Vec<(String, String)>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut environment: Vec<(String, String)> = ["HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), std::env::var(key).ok()?)))
            .collect();
        let works = |environment: &[(String, String)]| {
            let mut command = Command::new("podman");
            command.args(["run", "--rm", "--network", "none", "--entrypoint", "/bin/busybox", image(), "true"]);
            let output = command.envs(environment.iter().map(|(key, value)| (key, value))).output().unwrap();
            output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
        };
        build(&environment);
        if let Err(first) = works(&environment) {
            let conf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("podlink-test-containers.conf");
            podlink::token::replace_private(&conf, CONF.as_bytes()).unwrap();
            environment.retain(|(key, _)| key != "CONTAINERS_CONF");
            environment.push(("CONTAINERS_CONF".to_owned(), conf.to_str().unwrap().to_owned()));
            if let Err(second) = works(&environment) {
                panic!("podman is installed and runs nothing: {first}; with other settings: {second}");
            }
        }
        environment
    })
}

/// Makes the image, where it is missing: busybox and the script.
fn build(environment: &[(String, String)]) {
    let environment = || environment.iter().map(|(key, value)| (key, value));
    let exists = Command::new("podman").args(["image", "exists", image()]).envs(environment()).status().unwrap();
    if exists.success() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let mut command = Command::new("podman");
    command.args(["import", "--change", "ENTRYPOINT [\"/entry.sh\"]"]).arg(&archive).arg(image());
    let output = command.envs(environment()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The image's root as an archive.
pub fn archive(folder: &Path) -> PathBuf {
    let root = folder.join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let busybox = ["busybox", "busybox-static"].into_iter().find_map(which).expect("a static busybox, for the image");
    std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for applet in ["sh", "sleep", "nc", "cat"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    executable(&root.join("entry.sh"), ENTRY);
    let archive = folder.join("root.tar");
    let tar = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").output().unwrap();
    assert!(tar.status.success(), "{tar:?}");
    archive
}
