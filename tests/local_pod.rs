//! Pods of the local engine, and the failures of the others.

use std::{os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use crate::support::{Cli, LocalPod, Port, processes, wait_for};

#[test]
fn the_whole_main_job() {
    let pod = LocalPod::set_up();
    pod.cli(&["pod", "up"]).run().exits(0);
    pod.cli(&["pod", "wait-ready", "--timeout", "20"]).run().exits(0);
    let run = pod.cli(&["pod", "exec", "echo ok; echo err >&2; exit 7"]).run().exits(7);
    assert_eq!((&*run.stdout, &*run.stderr), ("ok\n", "err\n"));

    let again = pod.cli(&["pod", "up", "--json"]).run().exits(0);
    assert_eq!(again.json()["started"], false);
    let port = pod.port().to_string();
    pod.cli(&["setup", "--agent-port", &port]).run().exits(0); // its own agent there is no conflict

    let pid = pod.pid();
    let down = pod.cli(&["pod", "down", "--json"]).run().exits(0);
    assert_eq!((&down.json()["stopped"], &down.json()["killed"]), (&true.into(), &false.into()));
    // the lock goes an instant before the process does
    wait_for("the agent's end", Duration::from_secs(5), || !is_alive(pid));
    let down = pod.cli(&["pod", "down", "--json"]).run().exits(0);
    assert_eq!(down.json()["stopped"], false);
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_killed_agent_is_started_again_and_its_old_number_left_alone() {
    let pod = LocalPod::set_up();
    pod.cli(&["pod", "up"]).run().exits(0);
    let pid = pod.pid();
    processes::kill(&[pid]);
    // not by its state: a process with threads looks dead before the last of them lets go of its files
    let pid_file = std::fs::File::open(pod.dir().join("agent.pid")).unwrap();
    wait_for("the agent's end", Duration::from_secs(10), || pid_file.try_lock_shared().is_ok());
    drop(pid_file);
    // the number in the stale file now belongs to a stranger
    let seconds = processes::unique_seconds();
    let mut stranger = std::process::Command::new("sleep").arg(seconds).spawn().unwrap();
    std::fs::write(pod.dir().join("agent.pid"), format!("{}\n", stranger.id())).unwrap();
    let down = pod.cli(&["pod", "down", "--json"]).run().exits(0);
    assert_eq!(down.json()["stopped"], false);
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    pod.cli(&["pod", "up"]).run().exits(0);
    pod.cli(&["pod", "exec", "true"]).run().exits(0);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn many_ups_at_once_start_one_agent() {
    let pod = LocalPod::set_up();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = pod.cli(&["pod", "up"]).command();
            command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in outputs {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    pod.cli(&["pod", "exec", "true"]).run().exits(0);
}

#[test]
fn the_agent_gets_neither_secrets_nor_settings_of_the_tool() {
    let pod = LocalPod::set_up();
    let token = std::fs::read_to_string(pod.dir().join("agent_token.txt")).unwrap();
    pod.cli(&["pod", "up"]).env("PODLINK_SECRET", "hunter2").env("OTHER", "kept").run().exits(0);
    let pid = pod.pid();
    let environ = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).unwrap()).into_owned();
    assert!(environ.contains("OTHER=kept") && !environ.contains("PODLINK_"), "{environ}");
    let argv = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap()).into_owned();
    assert!(!environ.contains(token.trim()) && !argv.contains(token.trim()));
    let log = std::fs::read_to_string(pod.dir().join("agent.log")).unwrap_or_default();
    assert!(!log.contains(token.trim()));
}

#[test]
fn a_foreign_program_on_the_port_is_named() {
    let pod = LocalPod::set_up();
    let squatter = std::net::TcpListener::bind(("127.0.0.1", pod.port())).unwrap();
    for args in [&["pod", "up"][..], &["setup", "--agent-port", &pod.port().to_string()]] {
        let run = pod.cli(args).run().exits(125);
        assert!(run.stderr.contains(&format!("(pid {})", std::process::id())), "{}", run.stderr);
        assert!(run.took < Duration::from_secs(2));
    }
    drop(squatter);
}

#[test]
fn an_agent_that_cannot_start_says_why() {
    let pod = LocalPod::set_up();
    // the lock cannot be taken: a folder stands in its place
    std::fs::create_dir(pod.dir().join("agent.pid")).unwrap();
    let run = pod.cli(&["pod", "up"]).run().exits(125);
    assert!(run.stderr.contains("agent.pid"), "{}", run.stderr);
    std::fs::remove_dir(pod.dir().join("agent.pid")).unwrap();
}

#[test]
fn the_demo_does_it_all_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let run = Cli::new(["demo"]).env("TMPDIR", temp.path()).run().exits(0);
    for shown in ["$ podlink pod up", "hello from", "exit code 7", "exit code 124", "is down", "All as it should be"] {
        assert!(run.stdout.contains(shown), "{}", run.stdout);
    }
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "the folder is gone");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut command = Cli::new(["demo"]).env("TMPDIR", temp.path()).command();
    let mut demo = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut reader = std::io::BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("is up") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut reader, &mut line).unwrap() > 0, "it ended early");
    }
    let folder = std::fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(folder.join("demo/agent.pid")).unwrap();
    let pid = text.split_whitespace().next().unwrap().parse().unwrap();
    let id = rustix::process::Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    wait_for("its agent to be gone", Duration::from_secs(5), || !is_alive(pid));
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "the folder is gone");
}

/// A pod of podman, with a script in podman's place: the only way to see each of the engine's failures.
struct FakePodman {
    top: tempfile::TempDir,
    _ports: [Port; 3],
}

impl FakePodman {
    /// `podman` is a shell script with this body.
    fn new(body: &str) -> Self {
        let top = tempfile::tempdir().unwrap();
        let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
        let [agent, rdp, web] = ports.each_ref().map(|port| port.number().to_string());
        let bin = top.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let fake = Self { top, _ports: ports };
        fake.cli(&["setup", "--engine", "podman", "--agent-port", &agent, "--rdp-port", &rdp, "--web-port", &web])
            .run()
            .exits(0);
        if !body.is_empty() {
            script(&bin.join("podman"), body);
        }
        fake
    }

    fn cli(&self, args: &[&str]) -> Cli {
        let bin = self.top.path().join("bin");
        Cli::new(args).home(&self.top.path().join("home")).env("PATH", &bin).env("HOME", self.top.path())
    }

    /// `pod up` fails within 2 s and says all of this.
    #[track_caller]
    fn up_fails(&self, code: i32, says: &[&str]) {
        let run = self.cli(&["pod", "up"]).run().exits(code);
        for word in says {
            assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
        }
        assert!(run.took < Duration::from_secs(2), "{:?}", run.took);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

fn script(path: &Path, body: &str) {
    // written beside and renamed: a file that another thread's child still has open for writing cannot be run
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&temporary, path).unwrap();
}

#[test]
fn no_podman() {
    FakePodman::new("").up_fails(125, &["podman is not installed", "install podman"]);
}

#[test]
fn podman_without_compose() {
    let body = r#"case $1 in ps) echo '[]';; *) echo "unrecognized command podman $1" >&2; exit 125;; esac"#;
    FakePodman::new(body).up_fails(125, &["no compose", "podman-compose", "unrecognized command", "install"]);
}

#[test]
fn compose_up_fails() {
    let body =
        r#"case "$1 $2" in "ps -a") echo '[]';; "compose version") ;; *) echo 'no space left' >&2; exit 125;; esac"#;
    FakePodman::new(body).up_fails(125, &["compose", "code 125", "no space left"]);
}

#[test]
fn the_container_is_never_created() {
    let body = r#"case "$1 $2" in "ps -a") echo '[]';; "compose version") ;; *) echo 'pull: denied' >&2;; esac"#;
    FakePodman::new(body).up_fails(11, &["no container", "pull: denied"]);
}

#[test]
fn the_container_ends_at_once() {
    let body = r#"case "$1 $2" in
        "ps -a") if [ -e "$HOME/up" ]; then echo '[{"State":"exited","ExitCode":3}]'; else echo '[]'; fi;;
        "compose version") ;;
        *) : > "$HOME/up";; esac"#;
    FakePodman::new(body).up_fails(125, &["exited with code 3", "podlink pod logs"]);
}

#[test]
fn a_password_in_what_compose_prints_is_hidden() {
    let body = r#"case "$1 $2" in "ps -a") echo '[]';; "compose version") ;;
        *) while read -r line; do case $line in PASSWORD*) echo "podman create -e $line" >&2;; esac; done < compose.yaml; exit 1;; esac"#;
    let fake = FakePodman::new(body);
    fake.up_fails(125, &["podman create -e PASSWORD: \"<hidden>\""]);
}

#[test]
fn up_and_down_go_through_compose_with_project_and_files() {
    let body = r#"echo "$PWD $*" >> "$HOME/calls"
        case "$*" in
        ps*) if [ -e "$HOME/up" ]; then echo '[{"State":"running","ExitCode":0}]'; else echo '[]'; fi;;
        *" up -d") : > "$HOME/up";;
        *" down") exec /bin/rm "$HOME/up";; esac"#;
    let fake = FakePodman::new(body);
    std::fs::write(fake.top.path().join("home/windows/compose.override.yaml"), "services: {}\n").unwrap();
    let up = fake.cli(&["pod", "up", "--json"]).run().exits(0);
    assert_eq!((&up.json()["started"], &up.json()["engine"]), (&true.into(), &"podman".into()));
    assert_eq!(fake.cli(&["pod", "up", "--json"]).run().exits(0).json()["started"], false);
    assert_eq!(fake.cli(&["pod", "down", "--json"]).run().exits(0).json()["stopped"], true);
    assert_eq!(fake.cli(&["pod", "down", "--json"]).run().exits(0).json()["stopped"], false);
    let calls = std::fs::read_to_string(fake.top.path().join("calls")).unwrap();
    let up = calls.lines().find(|line| line.ends_with(" up -d")).unwrap();
    assert!(up.contains("/home/windows compose -p podlink-windows-"), "{up}");
    assert!(up.contains("-f compose.yaml -f compose.override.yaml"), "{up}");
    assert!(calls.contains("--filter label=io.podlink.project=podlink-windows-"), "{calls}");
}

#[test]
fn a_lock_held_by_something_else_kills_no_stranger() {
    let pod = LocalPod::set_up();
    let seconds = processes::unique_seconds();
    let mut stranger = std::process::Command::new("sleep").arg(seconds).spawn().unwrap();
    // what an agent before left, while a new one has taken the lock and not written yet
    let path = pod.dir().join("agent.pid");
    std::fs::write(&path, format!("{} 1\n", stranger.id())).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.lock().unwrap();
    let mut down = pod.cli(&["pod", "down"]).command().stderr(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        stranger.try_wait().unwrap().is_none() && down.try_wait().unwrap().is_none(),
        "it waits for the agent's word"
    );
    drop(file);
    assert!(down.wait().unwrap().success());
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn an_interrupted_up_leaves_no_agent() {
    for pause_ms in [2, 5, 8, 12, 16, 25] {
        let pod = LocalPod::set_up();
        let mut up = pod.cli(&["pod", "up"]).command().stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause_ms));
        let pid = rustix::process::Pid::from_raw(up.id().cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let was_up = up.wait().unwrap().success();
        let down = pod.cli(&["pod", "down", "--json"]).run().exits(0);
        assert!(was_up || down.json()["stopped"] == false, "{pause_ms} ms: {}", down.stdout);
        let port = pod.port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{pause_ms} ms: something serves");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let pod = LocalPod::set_up();
    pod.cli(&["pod", "up"]).run().exits(0);
    for args in [&["pod", "exec", "echo hi"][..], &["pod", "exec", "--json", "true"], &["pod", "status"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = pod.cli(args).command().stdout(full).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("could not be written"), "{args:?}");
    }
}

#[test]
fn a_wrong_command_line_is_json_too() {
    for args in [&["pod", "exec", "--json", "--nope"][..], &["pod", "status", "--json", "--pod", "../x"]] {
        let run = Cli::new(args).run().exits(2);
        assert_eq!((&run.json()["error"], &run.json()["exit_code"]), (&"usage".into(), &2.into()), "{args:?}");
    }
}

#[test]
fn waiting_in_vain_ends_early_with_its_own_code() {
    use std::io::{Read as _, Write as _};
    let pod = LocalPod::set_up();
    let absent = pod.cli(&["pod", "wait-ready", "--timeout", "60"]).run().exits(11);
    assert!(absent.took < Duration::from_secs(5), "{:?}", absent.took);

    // a program that answers every request in full, and is no agent
    let squatter = std::net::TcpListener::bind(("127.0.0.1", pod.port())).unwrap();
    std::thread::spawn(move || {
        for stream in squatter.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 4096];
            drop(stream.read(&mut request));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"));
        }
    });
    let foreign = pod.cli(&["pod", "wait-ready", "--timeout", "60", "--json"]).run().exits(13);
    assert_eq!(foreign.json()["error"], "foreign_program");
    assert!(foreign.took > Duration::from_secs(9) && foreign.took < Duration::from_secs(25), "{:?}", foreign.took);
}

#[test]
fn the_guests_time_out_is_the_one_that_is_seen() {
    let pod = LocalPod::set_up();
    pod.cli(&["pod", "up"]).run().exits(0);
    let in_time = pod.cli(&["pod", "exec", "--timeout", "2", "echo partly; sleep 1.7; echo done"]).run().exits(0);
    assert_eq!(in_time.stdout, "partly\ndone\n");
    let late = pod.cli(&["pod", "exec", "--timeout", "2", "echo partly; sleep 2.6; echo done"]).run().exits(124);
    assert_eq!(late.stdout, "partly\n");
    assert!(late.stderr.contains("timed out"), "{}", late.stderr);
}
