//! `podlink agent install`, `status` and `uninstall`: whole runs of the real executable, in folders of their own.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use podlink::token::Token;
use serde_json::{Value, json};

use crate::support::{
    Answer, Cli, Http, Port,
    agent::{as_documented, write_private},
    cli::Run,
    fake::write_pod,
    processes, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(40);

/// A guest with nothing in it but a bundle, as the image brings one.
#[derive(Debug)]
struct Guest {
    top: tempfile::TempDir,
    port: Port,
    token: String,
    /// Before all other folders on `PATH`.
    fakes: PathBuf,
}

impl Guest {
    /// One with a token.
    fn new() -> Self {
        let guest = Self::without_token();
        guest.stage_token(&guest.token);
        guest
    }

    fn without_token() -> Self {
        let top = tempfile::tempdir().unwrap();
        for folder in ["bundle/hooks", "fakes", "home", "root/usr/lib/systemd/systemd"] {
            std::fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        // a link to save the time of copying; what is installed is a copy all the same
        let exe = top.path().join("bundle/podlink");
        if std::fs::hard_link(env!("CARGO_BIN_EXE_podlink"), &exe).is_err() {
            std::fs::copy(env!("CARGO_BIN_EXE_podlink"), &exe).unwrap();
        }
        let fakes = top.path().join("fakes");
        Self { top, port: Port::reserve(), token: Token::generate().unwrap().expose().to_string(), fakes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn stage_token(&self, token: &str) {
        write_private(&self.path("bundle/agent_token.txt"), token);
    }

    /// A hook that notes that it ran, and then does this.
    fn hook(&self, name: &str, rest: &str) {
        let ran = self.path("ran");
        let text = format!("echo begin {name} >> {0}\n{rest}\necho end {name} >> {0}\n", ran.display());
        std::fs::write(self.path("bundle/hooks").join(name), text).unwrap();
    }

    fn ran(&self) -> Vec<String> {
        self.text("ran").lines().map(str::to_owned).collect()
    }

    fn agent_command(&self, command: &str) -> Cli {
        let path = std::env::var("PATH").unwrap();
        Cli::new(["agent", command, "--state-dir", self.path("state").to_str().unwrap()])
            .env("PATH", format!("{}:{path}", self.fakes.display()))
            .env("HOME", self.path("home"))
    }

    fn install_on(&self, listen: &str, flags: &[&str]) -> Cli {
        let at = |name| self.path(name).to_str().unwrap().to_owned();
        let fixed = [
            ["--bundle", &at("bundle")],
            ["--program-dir", &at("bin")],
            ["--token-file", &at("own/token")],
            ["--root", &at("root")],
            ["--listen", &format!("{listen}:{}", self.port.number())],
        ];
        self.agent_command("install").args(&fixed.concat()).args(flags)
    }

    /// `agent install`, on loopback.
    fn install(&self, flags: &[&str]) -> Cli {
        self.install_on("127.0.0.1", flags)
    }

    fn status(&self) -> Value {
        self.agent_command("status").args(&["--json"]).run().json()
    }

    fn state_of(&self, step: &str) -> Value {
        let status = self.status();
        let steps = status["install"]["steps"].as_array().unwrap();
        steps.iter().find(|found| found["name"] == step).unwrap_or_else(|| panic!("no {step} in {status}")).clone()
    }

    /// `/health`; `None` where nobody answers.
    fn health(&self) -> Option<Answer> {
        let answer = Http::new(self.port.number(), "GET", "/health").try_send()?;
        Some(as_documented("/health", answer))
    }

    fn wait_ready(&self) {
        wait_for("the agent to be ready", PATIENCE, || self.health().is_some_and(|health| health.status == 200));
    }

    fn whoami(&self, token: &str) -> Answer {
        Http::new(self.port.number(), "GET", "/whoami").bearer(token).send()
    }

    /// The agent that the installation has started.
    fn agent(&self) -> Option<u32> {
        let file: Value = serde_json::from_str(&self.text("state/agent.json")).ok()?;
        let pid = u32::try_from(file["pid"].as_u64()?).unwrap();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(self.top.path().to_str().unwrap()).then_some(pid)
    }

    /// The supervisor first, where there is one, or it would start another; an installer lives on.
    fn kill_agent(&self) {
        let serving = processes::mentioning("--installed");
        let ours = || processes::mentioning(self.top.path().to_str().unwrap());
        for pid in ours().into_iter().filter(|pid| serving.contains(pid)) {
            kill(pid, rustix::process::Signal::KILL);
        }
        // a process that is being ended loses its command line first, and its sockets after it
        let listens = || std::net::TcpStream::connect(("127.0.0.1", self.port.number())).is_ok();
        wait_for("the agent's end", PATIENCE, || !ours().iter().any(|pid| serving.contains(pid)) && !listens());
    }

    /// Starts it again, as the log-on of the next day does.
    fn serve(&self) -> Child {
        let mut command = self.agent_command("serve").args(&["--installed", "--tend-interval", "50"]).command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// A program of this name that writes down what it is called with, and then does this.
    fn fake(&self, name: &str, rest: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.fakes.join(name);
        let text = format!("#!/bin/sh\necho \"$@\" >> {}/{name}.calls\n{rest}\n", self.fakes.display());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // whoever was started with one of our folders on its command line: the agent, an installer, a hook
        for pid in processes::mentioning(self.top.path().to_str().unwrap()) {
            kill(pid, rustix::process::Signal::KILL);
        }
    }
}

fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn has(run: &Run, words: &[&str]) {
    for word in words {
        assert!(run.stdout.contains(word) || run.stderr.contains(word), "{word} is not in {run:?}");
    }
}

#[test]
fn it_installs_twice_and_takes_itself_out_again() {
    let guest = Guest::new();
    guest.hook("20-second.sh", "echo from the hook; echo $PODLINK_BUNDLE >&2");
    guest.hook("10-first.sh", "");
    std::fs::write(guest.path("bundle/hooks/readme.txt"), "no hook").unwrap();
    let run = guest.install(&["--mode", "manual"]).run().exits(0);
    has(&run, &["exe: done: copied", "token: done", "hook 10-first.sh: done", "install.done"]);
    assert!(!run.stdout.contains(&guest.token));

    guest.wait_ready();
    assert_eq!(guest.ran(), ["begin 10-first.sh", "end 10-first.sh", "begin 20-second.sh", "end 20-second.sh"]);
    let said = guest.text("state/hooks/20-second.sh.log");
    assert!(said.contains("from the hook\n") && said.contains(guest.path("bundle").to_str().unwrap()), "{said}");
    for (name, bits) in [("state", 0o700), ("own/token", 0o600), ("state/install.json", 0o600), ("bin/podlink", 0o755)]
    {
        assert_eq!(mode(&guest.path(name)), bits, "{name}");
    }
    assert!(!guest.path("bundle/agent_token.txt").exists(), "the bundle's copy goes once it is taken over");
    assert_eq!(guest.text("own/token").trim(), guest.token);
    assert!(!guest.text("state/install.json").contains(&guest.token));

    let whoami = as_documented("/whoami", guest.whoami(&guest.token)).json;
    assert_eq!((&whoami["mode"], &whoami["install"]["complete"]), (&json!("manual"), &json!(true)));
    let steps: Vec<&str> =
        whoami["install"]["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    let expected = ["firewall", "defender", "exe", "acl", "token", "autostart", "agent"];
    assert_eq!(steps, [&expected[..], &["hook 10-first.sh", "hook 20-second.sh"]].concat());
    let status = guest.agent_command("status").run().exits(0);
    has(&status, &["complete, version", "unavailable defender", "answers on 127.0.0.1"]);

    // again: the agent goes on, and hooks that have run do not run again
    let agent = guest.agent().unwrap();
    let run = guest.install(&["--mode", "manual"]).run().exits(0);
    has(&run, &["exe: done\n", "install.done"]);
    assert_eq!((guest.agent(), guest.ran().len()), (Some(agent), 4));
    guest.hook("20-second.sh", "# another");
    guest.hook("30-third.sh", "");
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    assert_eq!(guest.ran()[4..], ["begin 20-second.sh", "end 20-second.sh", "begin 30-third.sh", "end 30-third.sh"]);
    guest.wait_ready();

    let run = guest.agent_command("uninstall").run().exits(0);
    has(&run, &["agent: undone", "token: undone", "exe: undone", "they stay in"]);
    assert!(guest.agent().is_none() && guest.health().is_none());
    for gone in ["bin/podlink", "own/token", "state/install.json", "state/install.done", "state/agent.json"] {
        assert!(!guest.path(gone).exists(), "{gone}");
    }
    assert!(guest.path("state/install.log").exists());
    has(&guest.agent_command("status").run().exits(1), &["nothing is installed"]);
    has(&guest.agent_command("uninstall").run().exits(125), &["nothing is installed"]);
}

#[test]
fn another_version_or_port_takes_the_place_of_the_agent_that_runs() {
    let mut guest = Guest::new();
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    let first = guest.agent().unwrap();
    // a program that is another one by its content, and the same by what it does
    let installed = guest.path("bin/podlink");
    let mut bytes = std::fs::read(&installed).unwrap();
    bytes.push(0);
    let other = guest.path("other");
    std::fs::write(&other, &bytes).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(&other, &installed).unwrap();
    let run = guest.install(&["--mode", "manual"]).run().exits(0);
    has(&run, &["exe: done: copied"]);
    guest.wait_ready();
    let second = guest.agent().unwrap();
    assert_eq!(second, first, "it was started from what is installed again now");

    let old = std::mem::replace(&mut guest.port, Port::reserve());
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    guest.wait_ready();
    assert_ne!(guest.agent().unwrap(), second);
    assert!(std::net::TcpStream::connect(("127.0.0.1", old.number())).is_err(), "two agents run");
    drop(guest.agent_command("uninstall").args(&["--purge"]).run().exits(0));
    assert!(!guest.path("state").exists());
}

#[test]
fn a_port_that_somebody_else_holds_is_a_failure_of_the_step() {
    let guest = Guest::new();
    let held = std::net::TcpListener::bind(("127.0.0.1", guest.port.number())).unwrap();
    let run = guest.install(&["--mode", "manual", "--agent-deadline", "700"]).run().exits(14);
    has(&run, &["the installation failed at the step agent", "agent.log"]);
    drop(held);
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    guest.wait_ready();
}

#[test]
fn a_token_that_comes_later_is_taken_over_and_ends_the_installation() {
    let guest = Guest::without_token();
    guest.hook("10-a.sh", "");
    let run = guest.install(&["--mode", "manual"]).run().exits(0);
    has(&run, &["token: pending", "hook 10-a.sh: done", "the agent waits"]);
    assert!(!guest.path("state/install.done").exists());
    wait_for("the stage", PATIENCE, || {
        guest.health().is_some_and(|health| health.json["stage"] == "waiting_for_token")
    });
    has(&guest.agent_command("status").run().exits(1), &["not complete", "pending     token"]);

    // not yet all of it
    guest.stage_token(&guest.token[..20]);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(guest.path("bundle/agent_token.txt").exists());
    guest.stage_token(&guest.token);
    guest.wait_ready();
    assert_eq!(guest.whoami(&guest.token).status, 200);
    assert!(!guest.path("bundle/agent_token.txt").exists() && guest.path("state/install.done").exists());
    assert_eq!(guest.state_of("token")["state"], "done");
    assert_eq!(guest.ran().len(), 2);

    // and one that is staged after that, by a host that has made another
    let next = Token::generate().unwrap().expose().to_string();
    guest.stage_token(&next);
    wait_for("the new token", PATIENCE, || guest.whoami(&next).status == 200);
    assert_eq!(guest.whoami(&guest.token).status, 401);
    assert!(!guest.path("bundle/agent_token.txt").exists());
}

#[test]
fn a_hook_that_fails_ends_it_and_another_run_goes_on_there() {
    let guest = Guest::new();
    guest.hook("10-good.sh", "");
    guest.hook("20-bad.sh", "echo no room on the disk >&2; exit 7");
    guest.hook("30-last.sh", "");
    let run = guest.install(&["--mode", "manual"]).run().exits(14);
    has(&run, &["hook 20-bad.sh: it ended with 7: no room on the disk"]);
    assert!(!guest.path("state/install.done").exists());
    wait_for("the stage", PATIENCE, || guest.health().is_some_and(|health| health.json["stage"] == "install_failed"));
    let health = guest.health().unwrap();
    assert_eq!(health.status, 503);
    assert!(
        health.json["waiting_for"][0].as_str().unwrap().starts_with("hook 20-bad.sh: it ended with 7"),
        "{health:?}"
    );
    let refused = Http::new(guest.port.number(), "POST", "/exec").bearer(&guest.token);
    assert_eq!(refused.json(&json!({"script": "true"})).send().status, 503);
    assert_eq!(guest.state_of("hook 30-last.sh")["state"], "pending");

    // the agent does not try it again by itself, not at its next start either
    guest.kill_agent();
    let mut agent = guest.serve();
    wait_for("the stage", PATIENCE, || guest.health().is_some_and(|health| health.json["stage"] == "install_failed"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(guest.ran(), ["begin 10-good.sh", "end 10-good.sh", "begin 20-bad.sh"]);

    guest.hook("20-bad.sh", "");
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    guest.wait_ready();
    assert_eq!(guest.ran()[3..], ["begin 20-bad.sh", "end 20-bad.sh", "begin 30-last.sh", "end 30-last.sh"]);
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn a_hook_that_takes_too_long_is_ended_with_all_that_it_started() {
    let guest = Guest::new();
    let seconds = processes::unique_seconds();
    guest.hook("10-slow.sh", &format!("sleep {seconds} & setsid sleep {seconds} & sleep {seconds}"));
    let begun = Instant::now();
    let run = guest.install(&["--mode", "manual", "--hook-timeout-ms", "700"]).run().exits(14);
    has(&run, &["hook 10-slow.sh: it took longer than 0.7 s and was ended"]);
    assert!(begun.elapsed() < PATIENCE);
    wait_for("the end of what it started", PATIENCE, || processes::with_args(&["sleep", &seconds]).is_empty());
}

#[test]
fn health_names_the_step_and_a_second_installer_is_sent_away() {
    let guest = Guest::new();
    let go = guest.path("go");
    guest.hook("10-wait.sh", &format!("while ! test -e {}; do sleep 0.05; done", go.display()));
    let mut command = guest.install(&["--mode", "manual"]).command();
    let mut installer = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for("the step", PATIENCE, || {
        guest.health().is_some_and(|health| {
            assert_ne!(health.status, 200, "ready before its time");
            health.json["stage"] == "installing" && health.json["waiting_for"] == json!(["hook 10-wait.sh"])
        })
    });
    let run = guest.install(&["--mode", "manual", "--lock-patience", "100"]).run().exits(125);
    has(&run, &["another installation works in"]);
    let status = guest.status();
    assert_eq!((&status["installing"], &status["install"]["complete"]), (&json!(true), &json!(false)));
    has(&guest.agent_command("uninstall").run().exits(125), &["another installation works in"]);
    std::fs::write(&go, "").unwrap();
    assert!(installer.wait().unwrap().success());
    guest.wait_ready();
}

#[test]
fn the_agent_takes_up_what_a_killed_installer_has_left() {
    let guest = Guest::new();
    let go = guest.path("go");
    guest.hook("10-done.sh", "");
    guest.hook("20-cut.sh", &format!("while ! test -e {}; do sleep 0.05; done", go.display()));
    guest.hook("30-last.sh", "");
    let mut command = guest.install(&["--mode", "manual"]).command();
    let mut installer = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for("the hook", PATIENCE, || guest.ran().contains(&"begin 20-cut.sh".to_owned()));
    installer.kill().unwrap();
    installer.wait().unwrap();
    // it is ended and begun again; were it still there, there would be two ends
    wait_for("the second begin", PATIENCE, || {
        guest.ran().iter().filter(|line| *line == "begin 20-cut.sh").count() == 2
    });
    // the agent is ended in order while it works at it: what it has begun goes with it, and the next one begins it again
    kill(guest.agent().unwrap(), rustix::process::Signal::TERM);
    wait_for("the agent's end", PATIENCE, || guest.agent().is_none());
    assert!(!guest.path("state/install.done").exists());
    let mut agent = guest.serve();
    wait_for("the third begin", PATIENCE, || guest.ran().iter().filter(|line| *line == "begin 20-cut.sh").count() == 3);
    std::fs::write(&go, "").unwrap();
    guest.wait_ready();
    let ran = guest.ran();
    for (line, times) in [("begin 10-done.sh", 1), ("end 20-cut.sh", 1), ("begin 30-last.sh", 1), ("end 30-last.sh", 1)]
    {
        assert_eq!(ran.iter().filter(|ran| *ran == line).count(), times, "{line} in {ran:?}");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Whatever instant the kill comes at: another run ends it, and nothing says "done" before it is.
#[test]
fn an_installer_that_is_killed_at_any_instant_is_made_good_by_another_run() {
    const KILLS: u32 = 14;
    let guest = Guest::new();
    for name in ["10-a.sh", "20-b.sh"] {
        guest.hook(name, "sleep 0.05");
    }
    let begun = Instant::now();
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    let whole = begun.elapsed();
    for kill_number in 0..KILLS {
        // from the start again, but with what kills before left lying about
        guest.kill_agent();
        for file in ["bin/podlink", "own/token", "ran"] {
            drop(std::fs::remove_file(guest.path(file)));
        }
        if kill_number % 3 == 0 {
            drop(std::fs::remove_dir_all(guest.path("state")));
        }
        guest.stage_token(&guest.token);
        let mut command = guest.install(&["--mode", "manual"]).command();
        let mut installer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * kill_number / KILLS);
        installer.kill().unwrap();
        installer.wait().unwrap();
        if guest.path("state/install.done").exists() {
            let status = guest.status();
            let missing = status["install"]["steps"].as_array().unwrap().iter();
            let missing: Vec<_> = missing.filter(|step| step["required"] == true && step["state"] != "done").collect();
            assert!(missing.is_empty(), "kill {kill_number}: {missing:?}");
        }
        let run = guest.install(&["--mode", "manual"]).run().exits(0);
        has(&run, &["install.done: the installation is complete"]);
        guest.wait_ready();
        assert_eq!(guest.whoami(&guest.token).status, 200);
        assert!(!guest.path("bundle/agent_token.txt").exists());
        let left: Vec<_> =
            std::fs::read_dir(guest.path("bin")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.contains(&"podlink".into()), "{left:?}");
    }
}

#[test]
fn an_interrupted_installer_says_so_and_ends_its_hook() {
    let guest = Guest::new();
    let seconds = processes::unique_seconds();
    guest.hook("10-slow.sh", &format!("sleep {seconds}"));
    let mut command = guest.install(&["--mode", "manual"]).command();
    let installer = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the hook", PATIENCE, || !processes::with_args(&["sleep", &seconds]).is_empty());
    // whoever takes it up meanwhile would be the agent
    guest.kill_agent();
    kill(installer.id(), rustix::process::Signal::TERM);
    let output = installer.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert!(processes::with_args(&["sleep", &seconds]).is_empty());
    assert_eq!(guest.state_of("hook 10-slow.sh")["state"], "running");
}

#[test]
fn a_hook_that_others_could_have_written_is_not_run() {
    let guest = Guest::new();
    guest.hook("10-open.sh", "");
    let hook = guest.path("bundle/hooks/10-open.sh");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let run = guest.install(&["--mode", "manual"]).run().exits(14);
    has(&run, &["10-open.sh is not run", "others can write it"]);
    if is_root() {
        std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&hook, Some(4242), None).unwrap();
        has(&guest.install(&["--mode", "manual"]).run().exits(14), &["it belongs to user 4242"]);
    }
    assert!(guest.ran().is_empty());
    std::fs::remove_file(&hook).unwrap();
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
}

#[test]
fn wait_ready_ends_early_with_the_failed_step() {
    // without a token too: whoever waits for that would wait in vain
    for guest in [Guest::new(), Guest::without_token()] {
        guest.hook("10-bad.sh", "exit 3");
        drop(guest.install(&["--mode", "manual"]).run().exits(14));
        let home = guest.path("pods");
        drop(write_pod(&home, guest.port.number(), ""));
        write_private(&home.join("fake/agent_token.txt"), &guest.token);
        let begun = Instant::now();
        let run = Cli::new(["pod", "wait-ready", "--pod", "fake", "--timeout", "60"]).home(&home).run().exits(14);
        has(&run, &["hook 10-bad.sh", "it ended with 3"]);
        assert!(begun.elapsed() < Duration::from_secs(30));
        let has_token = guest.path("own/token").exists();
        let status = Cli::new(["pod", "status", "--pod", "fake", "--json"]).home(&home).run().json();
        assert_eq!(status["agent"]["health"]["stage"], "install_failed", "{status}");
        assert_eq!(status["token"], "unknown", "nothing was proved, or may not have been: {status}");
        assert_eq!(guest.health().unwrap().json["stage"], "install_failed");
        let exec = Http::new(guest.port.number(), "POST", "/exec").bearer(&guest.token);
        assert_eq!(exec.json(&json!({"argv": ["true"]})).send().status, 503, "with a token: {has_token}");
    }
}

/// The asking call is one of the agent's own.
#[test]
fn the_agent_is_restarted_from_inside_a_call_and_from_outside() {
    let guest = Guest::new();
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    guest.wait_ready();
    let id = || guest.health().and_then(|health| Some(health.json["agent_id"].as_str()?.to_owned()));
    let first = id().unwrap();
    let exe = guest.path("bin/podlink");
    let script = format!(
        "'{}' agent restart --state-dir '{}' || exit 9; sleep 0.3; echo after; exit 3",
        exe.display(),
        guest.path("state").display()
    );
    let answer = Http::new(guest.port.number(), "POST", "/exec")
        .bearer(&guest.token)
        .json(&json!({"script": BASE64_STANDARD.encode(&script)}))
        .send();
    assert_eq!(answer.json["rc"], 3, "{}", answer.json);
    let said = answer.json["stdout"].as_str().unwrap();
    assert!(said.contains("restarts once its calls, this one too, have ended") && said.ends_with("after\n"), "{said}");
    let second = || id().filter(|id| *id != first);
    wait_for("another agent", PATIENCE, || second().is_some());
    guest.wait_ready();

    let second = id().unwrap();
    let run = guest.agent_command("restart").run().exits(0);
    has(&run, &["the agent has restarted: ", "answers"]);
    let third = id().unwrap();
    assert!(run.stdout.contains(&third) && third != second, "{run:?}");
    guest.wait_ready();

    // another program in its place is not sent the token
    guest.kill_agent();
    let listener = std::net::TcpListener::bind(("127.0.0.1", guest.port.number())).unwrap();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = vec![0; 4096];
        let count = stream.read(&mut heard).unwrap();
        heard.truncate(count);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        stream.read_to_end(&mut heard).unwrap();
        String::from_utf8(heard).unwrap()
    });
    let run = guest.agent_command("restart").run().exits(125);
    has(&run, &["does not hold the token of this installation"]);
    let heard = heard.join().unwrap();
    assert!(heard.starts_with("GET /health ") && !heard.contains(&guest.token), "{heard}");
    drop(Cli::new(["agent", "restart", "--state-dir", guest.path("nowhere").to_str().unwrap()]).run().exits(125));
}

/// By a call of the agent that is updated: its answer is not lost.
#[test]
fn the_agent_is_updated_from_inside_a_call() {
    let guest = Guest::new();
    drop(guest.install(&["--mode", "manual"]).run().exits(0));
    guest.wait_ready();
    let first = guest.agent().unwrap();
    // another program, as far as its content goes
    let newer = guest.path("newer");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_podlink")).unwrap();
    bytes.extend_from_slice(b"newer");
    std::fs::write(&newer, &bytes).unwrap();
    std::fs::set_permissions(&newer, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let install = guest.install(&["--mode", "manual"]).command();
    let words = install.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ");
    let restart = format!(
        "'{}' agent restart --state-dir '{}'",
        guest.path("bin/podlink").display(),
        guest.path("state").display()
    );
    let script = format!("'{}' {words} && {restart} && echo after; exit 3", newer.display());
    let answer = Http::new(guest.port.number(), "POST", "/exec")
        .bearer(&guest.token)
        .json(&json!({"script": BASE64_STANDARD.encode(script)}))
        .send();
    assert_eq!(answer.json["rc"], 3, "{}", answer.json);
    let said = answer.json["stdout"].as_str().unwrap();
    assert!(
        said.contains("`podlink agent restart` has the installed one") && said.ends_with("after\n"),
        "{}",
        answer.json
    );
    wait_for("another agent", PATIENCE, || guest.agent().is_some_and(|agent| agent != first));
    guest.wait_ready();
    let runs = format!("/proc/{}/exe", guest.agent().unwrap());
    assert!(std::fs::read(runs).unwrap() == bytes, "the new one runs");
}

/// A `systemctl` that writes down what it is told and starts what the unit says, as systemd would.
fn fake_systemctl(guest: &Guest, unit: &Path) {
    std::fs::create_dir_all(guest.path("root/run/systemd/system")).unwrap();
    let start = format!(
        "case \"$*\" in *restart*) (eval setsid $(sed -n 's/^ExecStart=//p' '{}')) </dev/null >/dev/null 2>&1 & ;; esac",
        unit.display()
    );
    guest.fake("systemctl", &start);
}

#[test]
fn systemd_gets_a_unit_and_is_told_to_start_it() {
    let modes: &[(&str, &str, &str, &str)] = if is_root() {
        &[
            ("service", "root/etc/systemd/system", "multi-user.target.wants", ""),
            ("session", "home/.config/systemd/user", "default.target.wants", "--user "),
        ]
    } else {
        &[("session", "home/.config/systemd/user", "default.target.wants", "--user ")]
    };
    for (mode, folder, wants, flag) in modes {
        let guest = Guest::new();
        let unit = guest.path(folder).join("podlink-agent.service");
        fake_systemctl(&guest, &unit);
        let run = guest.install(&["--mode", mode]).run().exits(0);
        has(&run, &["autostart: done", "install.done"]);
        guest.wait_ready();
        let text = std::fs::read_to_string(&unit).unwrap();
        assert!(text.contains("\nExecStart=\"") && text.contains("\"--installed\""), "{text}");
        // the agent is told that it is started again, and the unit does so
        assert!(
            text.contains("\"--restarted-by-manager\"\n") && text.contains("\nRestartForceExitStatus=75\n"),
            "{text}"
        );
        assert_eq!(text.contains("User=root"), *mode == "service");
        let wanted = guest.path(folder).join(wants).join("podlink-agent.service");
        assert_eq!(std::fs::read_link(&wanted).unwrap(), unit);
        assert_eq!(
            guest.text("fakes/systemctl.calls"),
            format!("{flag}daemon-reload\n{flag}restart podlink-agent.service\n")
        );
        assert_eq!(as_documented("/whoami", guest.whoami(&guest.token)).json["mode"], *mode);
        has(&guest.agent_command("status").run().exits(0), &[unit.to_str().unwrap(), "again when it crashes"]);
        drop(guest.agent_command("uninstall").run().exits(0));
        assert!(!unit.exists() && std::fs::symlink_metadata(&wanted).is_err());
        assert!(guest.agent().is_none());
    }
}

#[test]
fn another_mode_leaves_nothing_of_the_one_before() {
    let guest = Guest::new();
    let unit = guest.path("home/.config/systemd/user/podlink-agent.service");
    fake_systemctl(&guest, &unit);
    let modes = [("session", true), ("manual", false), ("session", true)];
    let mut agents = Vec::new();
    for (mode, has_unit) in modes {
        drop(guest.install(&["--mode", mode]).run().exits(0));
        guest.wait_ready();
        assert_eq!(unit.exists(), has_unit, "{mode}");
        // the agent that runs is one that is started so: systemd would not start again what it has not started
        assert_eq!(guest.whoami(&guest.token).json["mode"], mode);
        let agent = guest.agent().unwrap();
        assert!(!agents.contains(&agent), "{mode}: {agents:?}");
        agents.push(agent);
    }
    let run = guest.install(&["--mode", "session"]).run().exits(0);
    has(&run, &["autostart: done"]);
    assert_eq!(guest.agent().as_ref(), agents.last(), "the same mode leaves it alone");
}

#[test]
fn without_systemd_the_autostart_says_what_is_left_to_do() {
    let guest = Guest::new();
    std::fs::remove_dir_all(guest.path("root/usr")).unwrap();
    let run = guest.install(&["--mode", "session"]).run().exits(14);
    has(&run, &["there is no systemd here", "--mode manual", "agent serve --installed"]);

    // there and not running, as in an image that is being made: it is registered, and the agent started beside it
    std::fs::create_dir_all(guest.path("root/usr/lib/systemd/systemd")).unwrap();
    let run = guest.install(&["--mode", "session"]).run().exits(0);
    has(&run, &["systemd does not run here now"]);
    guest.wait_ready();
}

#[test]
fn a_user_without_rights_installs_below_their_home() {
    if !is_root() {
        println!("skipped: the other tests run as such a user");
        return;
    }
    let guest = Guest::new();
    // all of it is theirs
    let own = |folder: &Path| {
        let owned = std::process::Command::new("chown").args(["-R", "4242:4242"]).arg(folder).status().unwrap();
        assert!(owned.success());
    };
    // not the link to our own program
    let exe = guest.path("bundle/podlink");
    std::fs::remove_file(&exe).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_podlink"), &exe).unwrap();
    own(guest.top.path());
    let as_user = |cli: Cli| {
        let command = cli.command();
        let mut under = std::process::Command::new("setpriv");
        under.args(["--reuid=4242", "--regid=4242", "--clear-groups"]).arg(&exe).args(command.get_args());
        under.env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        under.current_dir(guest.top.path()).output().unwrap()
    };
    let refused = as_user(guest.install(&["--mode", "service"]));
    assert_eq!(refused.status.code(), Some(14));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("takes root"), "{refused:?}");
    let installed = as_user(guest.install(&["--mode", "session"]));
    assert_eq!(installed.status.code(), Some(0), "{installed:?}");
    guest.wait_ready();
    let whoami = guest.whoami(&guest.token).json;
    assert_eq!((&whoami["elevated"], &whoami["mode"]), (&json!(false), &json!("session")));
    assert!(guest.path("home/.config/systemd/user/podlink-agent.service").exists());
}

/// No real firewalld: a program of its name that remembers what was opened.
#[test]
fn firewalld_is_opened_in_the_running_configuration_alone() {
    let guest = Guest::new();
    let opened = guest.path("opened");
    guest.fake(
        "firewall-cmd",
        &format!(
            "case \"$1\" in --state) echo running ;; --query-port=*) grep -qx \"${{1#--query-port=}}\" {0} ;;
             --add-port=*) echo \"${{1#--add-port=}}\" >> {0} ;; --remove-port=*) : > {0} ;; *) exit 2 ;; esac",
            opened.display()
        ),
    );
    let flags = ["--mode", "manual", "--allow-peer", "127.0.0.0/8"];
    let run = guest.install_on("0.0.0.0", &flags).run().exits(0);
    has(&run, &["firewall: done: open in firewalld until"]);
    guest.wait_ready();
    let port = format!("{}/tcp\n", guest.port.number());
    assert_eq!(guest.text("opened"), port);

    // firewalld is started again and has forgotten it; so is the agent
    std::fs::write(&opened, "").unwrap();
    guest.kill_agent();
    let mut agent = guest.serve();
    guest.wait_ready();
    wait_for("the port to be opened again", PATIENCE, || guest.text("opened") == port);
    let calls = guest.text("fakes/firewall-cmd.calls");
    assert!(!calls.contains("permanent") && !calls.contains("runtime-to"), "{calls}");
    has(&guest.agent_command("uninstall").run().exits(0), &["firewall: undone"]);
    assert_eq!(guest.text("opened"), "");
    agent.wait().unwrap();

    guest.fake("firewall-cmd", "[ \"$1\" = --state ] && echo running || { echo NOT_AUTHORIZED >&2; exit 253; }");
    guest.stage_token(&guest.token);
    let run = guest.install_on("0.0.0.0", &flags).run().exits(0);
    has(&run, &["firewall: failed: firewalld does not open port", "NOT_AUTHORIZED", "install.done"]);
    assert_eq!(guest.whoami(&guest.token).json["install"]["steps"][0]["state"], "failed");
    guest.fake("firewall-cmd", "echo 'not running'; exit 252");
    has(&guest.install_on("0.0.0.0", &flags).run().exits(0), &["firewall: unavailable: firewalld does not run"]);
}
