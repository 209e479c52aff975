//! `podlink pod logs`: several sources in one order of time.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::support::{Agent, Cli, LocalPod, Port, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A pod of podman whose container is a script, and whose agent is a real one.
struct Mixed {
    top: tempfile::TempDir,
    agent: Agent,
}

/// What stands in for podman: one container that runs while a file is there, and its log in another.
const PODMAN: &str = r#"#!/bin/sh
top=$(dirname "$(dirname "$0")")
case "$1" in
--version) echo 'podman version 5.4.0' ;;
ps)
    [ -e "$top/no-engine" ] && { echo 'cannot connect to the service' >&2; exit 125; }
    state=exited; [ -e "$top/runs" ] && state=running
    echo '[{"Id":"c0ffee","Names":["guest"],"State":"'$state'","ExitCode":0,"Labels":{"com.docker.compose.service":"guest","io.podman.compose.service":"guest","com.docker.compose.project":"'$(cat "$top/project")'","io.podman.compose.project":"'$(cat "$top/project")'"},"Ports":[]}]' ;;
inspect) echo '[]' ;;
logs)
    cat "$top/container.log"
    case " $* " in *" -f "*) while [ -e "$top/runs" ]; do sleep 0.05; done; echo '2027-01-01T00:00:00Z the end' ;; esac ;;
*) exit 1 ;;
esac
"#;

impl Mixed {
    fn new(flags: &[&str]) -> Self {
        let top = tempfile::tempdir().unwrap();
        let install = top.path().join("install.log");
        std::fs::write(&install, "2026-01-01T00:00:02Z step 1\nits detail\n2026-01-01T00:00:04Z step 2\n").unwrap();
        let mut all = vec!["--install-log", install.to_str().unwrap()];
        all.extend(flags);
        let agent = Agent::with(&all);
        let this = Self { top, agent };
        let bin = this.path("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("podman"), PODMAN).unwrap();
        std::fs::set_permissions(bin.join("podman"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(this.path("runs"), "").unwrap();
        let log =
            "2026-01-01T00:00:01Z boot\n2026-01-01T01:00:03+01:00 \u{1b}[1mkernel\u{1b}[0m\n2026-01-01T00:00:05Z up\n";
        std::fs::write(this.path("container.log"), log).unwrap();
        // the agent has its port by now, which setup would take for another program's
        let free = Port::reserve().number().to_string();
        this.cli(&["setup", "--engine", "podman", "--guest", "linux", "--image", "none", "--agent-port", &free])
            .run()
            .exits(0);
        let dir = this.path("home").join("windows");
        podlink::token::replace_private(&dir.join("agent_token.txt"), this.agent.token().as_bytes()).unwrap();
        let settings = std::fs::read_to_string(dir.join("pod.yaml")).unwrap();
        let settings = settings.replace(&free, &this.agent.port().to_string());
        podlink::token::replace_private(&dir.join("pod.yaml"), settings.as_bytes()).unwrap();
        std::fs::write(this.path("project"), "podlink-windows").unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn cli(&self, args: &[&str]) -> Cli {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        Cli::new(args).home(&self.path("home")).env("PATH", path)
    }

    fn logs(&self, args: &[&str]) -> Cli {
        self.cli(&[&["pod", "logs"], args].concat())
    }
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn three_sources_are_one_log_in_the_order_of_time() {
    let pod = Mixed::new(&[]);
    let run = pod.logs(&[]).run().exits(0);
    assert_eq!(run.stderr, "");
    let lines: Vec<&str> = run.stdout.lines().collect();
    let first = [
        "container | boot",
        "install   | 2026-01-01T00:00:02Z step 1",
        "install   | its detail",
        "container | \u{1b}[1mkernel\u{1b}[0m",
        "install   | 2026-01-01T00:00:04Z step 2",
        "container | up",
    ];
    assert_eq!(lines[..6], first);
    assert!(lines[6].starts_with("agent     | ") && run.stdout.contains("agent started"), "{}", lines[6]);

    let run = pod.logs(&["--json", "--source", "install", "--source", "container", "--tail", "2"]).run().exits(0);
    let texts: Vec<(String, String)> = objects(&run.stdout)
        .iter()
        .map(|line| (line["source"].as_str().unwrap().to_owned(), line["text"].as_str().unwrap().to_owned()))
        .collect();
    let of = |source: &str| {
        texts.iter().filter(|(from, _)| from == source).map(|(_, text)| text.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("install"), ["its detail", "2026-01-01T00:00:04Z step 2"]);
    assert!(of("agent").is_empty());

    let run = pod.logs(&["--json", "--since", "2026-01-01T00:00:03Z", "--source", "container"]).run().exits(0);
    let times: Vec<Value> = objects(&run.stdout).iter().map(|line| line["time"].clone()).collect();
    assert_eq!(times, ["2026-01-01T00:00:03Z", "2026-01-01T00:00:05Z"]);
    let run = pod.logs(&["--json", "--since", "1d", "--source", "install"]).run().exits(0);
    assert_eq!(run.stdout, "");
    for bad in [["--since", "yesterday"], ["--since", "5x"], ["--source", "guest"]] {
        pod.logs(&bad).run().exits(2);
    }
}

#[test]
fn a_source_that_cannot_be_read_is_told_once_and_leaves_the_others() {
    let pod = Mixed::new(&[]);
    std::fs::write(pod.path("no-engine"), "").unwrap();
    let run = pod.logs(&[]).run().exits(0);
    assert!(run.stdout.contains("install   | its detail") && run.stdout.contains("agent started"));
    assert_eq!(run.stderr.matches("the container log cannot be read").count(), 1, "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    std::fs::remove_file(pod.path("no-engine")).unwrap();
    pod.agent.kill();
    let run = pod.logs(&[]).run().exits(0);
    assert!(run.stdout.contains("container | boot"));
    for source in ["agent", "install"] {
        assert_eq!(run.stderr.matches(&format!("the {source} log cannot be read")).count(), 1, "{}", run.stderr);
    }
    // with none left it is a failure, and the engine's word for it is the one
    std::fs::write(pod.path("no-engine"), "").unwrap();
    let run = pod.logs(&[]).run().exits(125);
    assert!(run.stderr.contains("cannot connect to the service"), "{}", run.stderr);
}

/// The lines of a command that runs.
struct Following {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Following {
    fn begin(cli: &Cli) -> Self {
        let mut child =
            cli.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, seen: Vec::new() }
    }

    #[track_caller]
    fn sees(&mut self, what: &str) {
        wait_for(what, PATIENCE, || {
            self.seen.extend(self.lines.try_iter());
            self.seen.iter().any(|line| line.contains(what))
        });
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn what_is_followed_ends_with_the_pod() {
    let pod = Mixed::new(&[]);
    let mut following = Following::begin(&pod.logs(&["-f"]));
    following.sees("agent started");
    following.sees("container | up");
    assert_eq!(pod.agent.call("GET", "/whoami", &[("x-request-id", "while-followed")], b"").answer().status, 200);
    following.sees("while-followed");
    std::fs::remove_file(pod.path("runs")).unwrap();
    following.sees("container | the end");
    let mut status = None;
    wait_for("the end", PATIENCE, || {
        status = following.child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn a_local_pods_log_is_read_with_or_without_its_agent() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["logs", "--json"]).run().exits(0);
    let lines = objects(&run.stdout);
    assert!(lines.iter().all(|line| line["source"] == "agent" && line["time"].is_string()), "{}", run.stdout);
    let log = pod.dir().join("agent.log");
    // as if it had been turned over
    std::fs::write(pod.dir().join("agent.log.1"), "2026-01-01T00:00:00Z older\n").unwrap();
    let run = pod.pod(&["logs"]).run().exits(0);
    assert!(run.stdout.starts_with("agent     | 2026-01-01T00:00:00Z older\n"), "{}", run.stdout);
    let mut following = Following::begin(&pod.pod(&["logs", "-f", "--tail", "1"]));
    following.sees("agent     |");
    std::fs::rename(&log, pod.dir().join("agent.log.2")).unwrap();
    pod.pod(&["exec", "true"]).run().exits(0);
    following.sees("call ended");
    pod.pod(&["down"]).run().exits(0);
    following.sees("stopped");
    wait_for("the end", PATIENCE, || following.child.try_wait().unwrap().is_some());
    assert!(pod.pod(&["logs", "--tail", "1"]).run().exits(0).stdout.contains("stopped"));
    let run = pod.pod(&["logs", "--source", "container"]).run().exits(125);
    assert!(run.stderr.contains("is local"), "{}", run.stderr);
}
