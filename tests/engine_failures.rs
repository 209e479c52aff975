//! Engines that fail, as scripts on PATH: what cannot be had from a real one on demand. And the local engine.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    Cli, Port,
    podman::{executable, which},
    wait_for,
};

/// Keeps the container's state in a file, notes every call, and fails as it is told to by files.
const ENGINE: &str = r#"#!/bin/sh
echo "$(basename "$0") $*" >> "$FAKE/calls"
state=$(cat "$FAKE/state" 2> /dev/null || echo absent)
case "$*" in
*"network ls"*) [ "$(basename "$0")" = podman ] && cat "$FAKE/networks" 2> /dev/null; exit 0 ;;
"image inspect "*) exit 0 ;;
"network rm "*) rm -f "$FAKE/networks" ;;
"compose version") exit 1 ;;
"ps "*)
  [ -e "$FAKE/ps-fails" ] && { echo "cannot connect to the service" >&2; exit 125; }
  [ "$state" = absent ] && { echo "[]"; exit 0; }
  echo "[{\"Id\":\"c1\",\"State\":\"$state\",\"ExitCode\":3,\"Labels\":{},\"Ports\":[]}]" ;;
*" up -d"*)
  [ -e "$FAKE/up-fails" ] && { echo "podman run -e PASSWORD=$(cat "$FAKE/password") image" >&2; echo "no such image" >&2; exit 125; }
  cat "$FAKE/after-up" > "$FAKE/state" ;;
"stop "*) echo exited > "$FAKE/state" ;;
*" down") [ -e "$FAKE/down-fails" ] && { echo "compose is broken" >&2; exit 1; }; rm -f "$FAKE/state" ;;
"rm -f "*) rm -f "$FAKE/state" ;;
*) echo "unknown call: $*" >&2; exit 64 ;;
esac
"#;

struct Fake {
    folder: tempfile::TempDir,
    port: Port,
}

impl Fake {
    /// A pod named `fake` in an engine that answers as the script says.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["podman", "podman-compose"] {
            executable(&bin.join(name), ENGINE);
        }
        for tool in ["sh", "cat", "rm", "basename", "echo"] {
            std::os::unix::fs::symlink(which(tool).unwrap(), bin.join(tool)).unwrap();
        }
        let port = Port::reserve();
        let fake = Self { folder, port };
        fake.put("password", "hunter2hunter2");
        fake.put("after-up", "running");
        let number = fake.port.number().to_string();
        let password = fake.path("password");
        let flags = ["--engine", "podman", "--guest", "linux", "--image", "none", "--agent-port", &number];
        let args = ["setup", "--pod", "fake", "--password-file", password.to_str().unwrap()];
        drop(fake.cli(args.into_iter().chain(flags)).run().exits(0));
        fake.put("calls", "");
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn cli<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cli {
        let cli = Cli::new(args).home(&self.path("home")).env("PATH", self.path("bin"));
        cli.env("FAKE", self.folder.path()).env("HOME", self.folder.path())
    }

    fn pod(&self, word: &str) -> Cli {
        self.cli(["pod", word, "--pod", "fake"])
    }

    /// What the engine and compose were called with since the last time, less the looks.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path("calls")).unwrap();
        self.put("calls", "");
        let looks = ["podman ps ", "podman network ls", "podman image inspect"];
        calls.lines().filter(|call| !looks.iter().any(|look| call.starts_with(look))).map(str::to_owned).collect()
    }
}

/// R-06.
#[test]
fn what_is_missing_is_named_at_once() {
    let fake = Fake::new();
    for (gone, words) in
        [("podman-compose", ["podman-compose", "install"]), ("podman", ["podman is not installed", "install podman"])]
    {
        std::fs::remove_file(fake.path("bin").join(gone)).unwrap();
        let run = fake.pod("up").run().exits(125);
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{}", run.stderr);
        assert!(run.took < Duration::from_secs(2), "{:?}", run.took);
    }
    let status = fake.cli(["pod", "status", "--pod", "fake", "--json"]).run().exits(0).json();
    assert_eq!(status["state"], "unknown");
    assert!(status["engine_error"].as_str().unwrap().contains("not installed"), "{status}");
}

#[test]
fn a_failing_engine_is_quoted_without_the_password() {
    let fake = Fake::new();
    fake.put("up-fails", "");
    let run = fake.pod("up").run().exits(125);
    assert!(run.stderr.contains("no such image") && run.stderr.contains("code 125"), "{}", run.stderr);
    assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);

    std::fs::remove_file(fake.path("up-fails")).unwrap();
    for (after, code, word) in [("absent", 11, "made no container"), ("exited", 125, "exited with code 3")] {
        fake.put("after-up", after);
        let run = fake.pod("up").run().exits(code);
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    assert_eq!(fake.cli(["pod", "status", "--pod", "fake", "--json"]).run().exits(0).json()["state"], "failed");

    fake.put("ps-fails", "");
    for word in ["up", "down", "restart", "pause", "resume", "logs"] {
        let run = fake.pod(word).run().exits(125);
        assert!(run.stderr.contains("cannot connect to the service"), "{word}: {}", run.stderr);
    }
}

#[test]
fn the_guest_is_stopped_in_its_time_before_compose_takes_it_down() {
    let fake = Fake::new();
    drop(fake.pod("up").run().exits(0));
    drop(fake.calls());
    fake.put("networks", "podlink-fake-net\n");
    drop(fake.pod("down").run().exits(0));
    let calls = fake.calls();
    assert_eq!(calls[0], "podman stop -t 120 c1", "{calls:?}");
    assert!(calls[1].starts_with("podman-compose -p podlink-fake-") && calls[1].ends_with(" down"), "{calls:?}");
    assert_eq!(calls[2], "podman network rm podlink-fake-net");
    assert_eq!(calls.len(), 3, "{calls:?}");

    drop(fake.pod("up").run().exits(0));
    drop(fake.calls());
    drop(fake.pod("restart").run().exits(0));
    let calls = fake.calls();
    assert_eq!(calls[0], "podman stop -t 120 c1", "{calls:?}");
    assert!(calls[1].ends_with(" up -d") && calls.len() == 2, "{calls:?}");

    // compose fails, or its file is gone: the label still tells what is ours
    fake.put("down-fails", "");
    drop(fake.pod("down").run().exits(0));
    assert!(fake.calls().iter().any(|call| call == "podman rm -f c1"));
    drop(fake.pod("up").run().exits(0));
    std::fs::remove_file(fake.path("home/fake/compose.yaml")).unwrap();
    drop(fake.pod("down").run().exits(0));
    let run = fake.pod("up").run().exits(125);
    assert!(run.stderr.contains("compose.yaml is missing") && run.stderr.contains("podlink setup"), "{}", run.stderr);
}

#[test]
fn credentials_are_shown_by_one_command_alone() {
    let fake = Fake::new();
    let shown = fake.pod("credentials").run().exits(0).stdout;
    assert!(shown.contains("Docker") && shown.contains("hunter2hunter2"), "{shown}");
    let json = fake.cli(["pod", "credentials", "--pod", "fake", "--json"]).run().exits(0).json();
    assert_eq!((&json["user"], &json["password"]), (&"Docker".into(), &"hunter2hunter2".into()));
    for args in [&["pod", "status"][..], &["pod", "list"], &["pod", "up"], &["pod", "down"], &["setup"]] {
        let more: &[&str] = if args == ["pod", "list"] { &[] } else { &["--pod", "fake"] };
        for json in [&[][..], &["--json"]] {
            let run = fake.cli(args.iter().chain(more).chain(json).copied()).run().exits(0);
            assert!(!format!("{}{}", run.stdout, run.stderr).contains("hunter2"), "{args:?}");
        }
    }
}

#[test]
fn setup_says_what_the_machine_lacks() {
    let fake = Fake::new();
    let run = fake.cli(["setup", "--pod", "fake", "--ram", "4096T", "--json"]).run().exits(0).json();
    let warnings = run["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains("of memory are available")), "{run}");
    let has_kvm = Path::new("/dev/kvm").exists();
    assert_eq!(warnings.iter().any(|warning| warning.as_str().unwrap().contains("/dev/kvm")), !has_kvm, "{run}");
}

/// A home with a pod in the local engine, taken down when dropped.
struct Local(tempfile::TempDir, Port);

impl Local {
    fn new() -> Self {
        let local = Self(tempfile::tempdir().unwrap(), Port::reserve());
        let number = local.1.number().to_string();
        drop(local.cli(&["setup", "--engine", "local", "--agent-port", &number]).run().exits(0));
        local
    }

    fn cli(&self, args: &[&str]) -> Cli {
        Cli::new(args).home(self.0.path()).env("PODLINK_POD", "here").env("HOME", self.0.path())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        drop(self.cli(&["pod", "down"]).run());
    }
}

#[test]
fn a_local_pod_has_the_same_life_but_for_pauses() {
    let local = Local::new();
    let mut watching = local.cli(&["pod", "status", "--watch", "--until", "ready", "--timeout", "30"]).command();
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watching.stdout.take().unwrap()));
    assert!(lines.next().unwrap().unwrap().contains(" gone "));
    drop(local.cli(&["pod", "up"]).run().exits(0));
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.last().unwrap().contains(" ready "), "{rest:?}");
    assert_eq!(watching.wait().unwrap().code(), Some(0));

    let pid = || std::fs::read_to_string(local.0.path().join("here/agent.pid")).unwrap();
    let first = pid();
    drop(local.cli(&["pod", "restart"]).run().exits(0));
    assert_ne!(pid(), first);
    drop(local.cli(&["pod", "wait-ready"]).run().exits(0));
    for word in ["pause", "resume", "credentials"] {
        let run = local.cli(&["pod", word, "--json"]).run().exits(125);
        assert_eq!((&run.json()["error"], run.stderr.as_str()), (&Value::from("settings"), ""));
    }
    let listed = local.cli(&["pod", "list", "--json"]).run().exits(0).json();
    assert_eq!((&listed["pods"][0]["state"], &listed["pods"][0]["ready"]), (&"ready".into(), &true.into()), "{listed}");

    let log = local.cli(&["pod", "logs"]).run().exits(0).stdout;
    assert!(log.lines().count() > 1, "{log}");
    let last = local.cli(&["pod", "logs", "--tail", "1"]).run().exits(0).stdout;
    assert_eq!(last.lines().count(), 1, "{last}");
    let mut following = local.cli(&["pod", "logs", "-f", "--tail", "0"]).command();
    let mut following = following.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(local.cli(&["pod", "down"]).run().exits(0));
    let mut ended = None;
    wait_for("the end of the log", Duration::from_secs(20), || {
        ended = following.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    assert_eq!(local.cli(&["pod", "status", "--json"]).run().exits(0).json()["state"], "stopped");
}

#[test]
fn a_broken_pod_does_not_hide_the_others() {
    let local = Local::new();
    let broken = local.0.path().join("broken");
    podlink::token::ensure_private_dir(&broken).unwrap();
    podlink::token::replace_private(&broken.join("pod.yaml"), b"engine: [\n").unwrap();
    std::fs::create_dir(local.0.path().join("no-pod")).unwrap();
    let listed = local.cli(&["pod", "list", "--json"]).run().exits(0).json();
    let names: Vec<&Value> = listed["pods"].as_array().unwrap().iter().map(|pod| &pod["name"]).collect();
    assert_eq!(names, ["broken", "here"]);
    assert!(listed["pods"][0]["error"].as_str().unwrap().contains("does not read"), "{listed}");
    assert!(local.cli(&["pod", "list"]).run().exits(0).stdout.contains("broken"));
}
