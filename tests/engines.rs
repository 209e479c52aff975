//! A pod's life in real containers: podman with the compose that is installed, a shell script for a guest.

use std::{
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{Podman, podman::Ports, port::on_loopback_alone, wait_for};

const LONG: Duration = Duration::from_secs(30);

fn state(podman: &Podman, pod: &str) -> String {
    podman.pod(pod, &["status", "--json"]).run().exits(0).json()["state"].as_str().unwrap().to_owned()
}

fn up(podman: &Podman, pod: &str) -> Value {
    podman.pod(pod, &["up", "--json"]).run().exits(0).json()
}

fn nothing_left(podman: &Podman, pod: &str) {
    assert!(podman.containers(pod).is_empty(), "{:?}", podman.containers(pod));
    assert!(podman.networks(pod).is_empty(), "{:?}", podman.networks(pod));
}

#[test]
fn a_pod_goes_up_stays_is_made_anew_when_changed_and_goes_down() {
    let Some(podman) = Podman::find() else { return };
    let ports = podman.setup("life", "linux");
    assert_eq!(state(&podman, "life"), "gone");
    let marker = podman.storage("life").join("disk.img");
    std::fs::write(&marker, "the guest's").unwrap();
    let theirs = "services:\n  guest:\n    environment:\n      GREETING: \"theirs\"\n";
    let override_file = podman.dir("life").join("compose.override.yaml");
    std::fs::write(&override_file, theirs).unwrap();

    let first = up(&podman, "life");
    assert_eq!((&first["started"], &first["recreated"]), (&Value::Bool(true), &Value::Bool(false)), "{first}");
    let made = podman.containers("life");
    assert_eq!(made.len(), 1);
    assert_eq!(state(&podman, "life"), "starting");
    on_loopback_alone(ports.agent.number());
    on_loopback_alone(ports.web.number());
    let environment = podman.inspect("life", "{{.Config.Env}}");
    assert!(environment.contains("GREETING=theirs"), "{environment}");

    // unchanged: left alone
    assert_eq!(up(&podman, "life")["started"], false);
    assert_eq!(podman.containers("life"), made);

    // changed by setup, on the same ports, which the pod itself holds
    drop(podman.cli(["setup", "--pod", "life", "--ram", "5G"]).run().exits(0));
    let second = up(&podman, "life");
    assert_eq!(second["recreated"], true, "{second}");
    let anew = podman.containers("life");
    assert_ne!(anew, made);
    assert!(podman.inspect("life", "{{.Config.Env}}").contains("RAM_SIZE=5G"));
    assert!(podman.inspect("life", "{{.Config.Env}}").contains("GREETING=theirs"));
    assert_eq!(std::fs::read_to_string(&override_file).unwrap(), theirs, "the user's file is the user's");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "the guest's", "the disk stays");

    // changed by the user
    std::fs::write(&override_file, theirs.replace("theirs", "other")).unwrap();
    assert_eq!(up(&podman, "life")["recreated"], true);
    assert!(podman.inspect("life", "{{.Config.Env}}").contains("GREETING=other"));

    // changed to what cannot start: what runs is left running
    let runs = podman.containers("life");
    for broken in [": bad: [", "services:\n  guest:\n    image: localhost/podlink-no-such-image:9\n"] {
        std::fs::write(&override_file, broken).unwrap();
        for command in ["up", "restart"] {
            let run = podman.pod("life", &[command]).run().exits(125);
            assert!(run.stderr.contains("the pod is left as it is"), "{}", run.stderr);
            assert_eq!(podman.containers("life"), runs, "{command} with {broken:?}");
        }
    }
    std::fs::write(&override_file, theirs.replace("theirs", "other")).unwrap();

    drop(podman.pod("life", &["down"]).run().exits(0));
    nothing_left(&podman, "life");
    assert_eq!(state(&podman, "life"), "gone");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "the guest's");
    assert!(podman.pod("life", &["down"]).run().exits(0).stdout.contains("was not running"));
}

#[test]
fn a_pod_is_paused_resumed_restarted_and_its_log_read() {
    let Some(podman) = Podman::find() else { return };
    let ports = podman.setup("calm", "linux");
    for word in ["pause", "resume", "logs"] {
        let run = podman.pod("calm", &[word]).run().exits(11);
        assert!(run.stderr.contains("podlink pod up --pod calm"), "{}", run.stderr);
    }
    drop(up(&podman, "calm"));
    let made = podman.containers("calm");

    drop(podman.pod("calm", &["pause"]).run().exits(0));
    assert_eq!(state(&podman, "calm"), "paused");
    drop(podman.pod("calm", &["pause"]).run().exits(0));
    drop(podman.pod("calm", &["resume"]).run().exits(0));
    assert_eq!(state(&podman, "calm"), "starting");
    drop(podman.pod("calm", &["resume"]).run().exits(0));
    // up lets a paused one run on
    drop(podman.pod("calm", &["pause"]).run().exits(0));
    drop(up(&podman, "calm"));
    assert_eq!(state(&podman, "calm"), "starting");

    let hellos = || podman.pod("calm", &["logs"]).run().exits(0).stdout.matches("hello from the guest").count();
    wait_for("the guest's hello", LONG, || hellos() == 1);
    // a frozen one hears no signal, and is restarted nonetheless
    drop(podman.pod("calm", &["pause"]).run().exits(0));
    drop(podman.pod("calm", &["restart"]).run().exits(0));
    assert_eq!(podman.containers("calm"), made, "the container is the same");
    wait_for("another hello", LONG, || hellos() == 2);
    let stopped = std::fs::read_to_string(podman.storage("calm").join("stopped")).unwrap();
    assert_eq!(stopped.lines().count(), 1, "it was stopped in its own time");
    assert_eq!(podman.pod("calm", &["logs", "--tail", "1"]).run().exits(0).stdout.lines().count(), 1);

    // the log and the viewer's address accompany a wait
    let run = podman.pod("calm", &["wait-ready", "--timeout", "4"]).run().exits(10);
    let viewer = format!("viewer: http://127.0.0.1:{}/", ports.web.number());
    assert!(run.stderr.contains(&viewer), "{}", run.stderr);
    assert!(run.stderr.contains("container: hello from the guest with nothing"), "{}", run.stderr);
    assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);

    // it follows until the pod ends
    let mut following = podman.pod("calm", &["logs", "-f"]).command();
    let mut following = following.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(podman.pod("calm", &["down"]).run().exits(0));
    let mut ended = None;
    wait_for("the end of the log", LONG, || {
        ended = following.try_wait().unwrap();
        ended.is_some()
    });
    let output = following.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("stopping"), "{output:?}");
    nothing_left(&podman, "calm");
}

#[test]
fn a_slow_guest_gets_its_time_to_shut_down() {
    let Some(podman) = Podman::find() else { return };
    let _ports = podman.setup("slow", "linux");
    // beyond the 10 s of a front end that does not heed stop_grace_period
    let slow = "services:\n  guest:\n    environment:\n      STOP_AFTER: \"12\"\n";
    std::fs::write(podman.dir("slow").join("compose.override.yaml"), slow).unwrap();
    drop(up(&podman, "slow"));
    wait_for("the guest's hello", LONG, || podman.pod("slow", &["logs"]).run().stdout.contains("hello"));
    let run = podman.pod("slow", &["down"]).run().exits(0);
    assert!(podman.storage("slow").join("stopped").exists(), "it was killed after {:?}", run.took);
    assert!(run.took >= Duration::from_secs(12));
    nothing_left(&podman, "slow");
}

#[test]
fn two_pods_live_side_by_side() {
    let Some(podman) = Podman::find() else { return };
    let (one, two): (Ports, Ports) = (podman.setup("one", "linux"), podman.setup("two", "linux"));
    drop(up(&podman, "one"));
    drop(up(&podman, "two"));
    let listed = podman.cli(["pod", "list", "--json"]).run().exits(0).json();
    for (index, (name, ports)) in [("one", &one), ("two", &two)].into_iter().enumerate() {
        let pod = &listed["pods"][index];
        assert_eq!((&pod["name"], &pod["engine"], &pod["state"]), (&name.into(), &"podman".into(), &"starting".into()));
        assert_eq!((&pod["ready"], &pod["port"]), (&false.into(), &ports.agent.number().into()));
        on_loopback_alone(ports.agent.number());
    }
    drop(podman.pod("one", &["down"]).run().exits(0));
    nothing_left(&podman, "one");
    assert_eq!((state(&podman, "one"), state(&podman, "two")), ("gone".to_owned(), "starting".to_owned()));
    let text = podman.cli(["pod", "list"]).run().exits(0).stdout;
    assert!(text.lines().any(|line| line.starts_with("one ") && line.contains(" gone ")), "{text}");
    drop(podman.pod("two", &["down"]).run().exits(0));
    nothing_left(&podman, "two");
}

/// C-11.
#[test]
fn a_port_that_another_program_holds_is_named_at_once() {
    let Some(podman) = Podman::find() else { return };
    let ports = podman.setup("busy", "windows");
    for port in [&ports.agent, &ports.web, &ports.rdp] {
        let listener = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
        let run = podman.pod("busy", &["up"]).run().exits(125);
        let owner = format!("{} is taken by", port.number());
        assert!(
            run.stderr.contains(&owner) && run.stderr.contains(&format!("(pid {})", std::process::id())),
            "{}",
            run.stderr
        );
        assert!(run.took < Duration::from_secs(5), "{:?}", run.took);
        nothing_left(&podman, "busy");
        drop(listener);
    }
    // and one that comes while the pod runs does not cost it its container
    drop(up(&podman, "busy"));
    let made = podman.containers("busy");
    let other = crate::support::Port::reserve();
    let number = other.number().to_string();
    drop(podman.cli(["setup", "--pod", "busy", "--agent-port", &number]).run().exits(0));
    let _listener = TcpListener::bind(("127.0.0.1", other.number())).unwrap();
    let run = podman.pod("busy", &["up"]).run().exits(125);
    assert!(run.stderr.contains(&format!("{number} is taken by")), "{}", run.stderr);
    assert_eq!(podman.containers("busy"), made);
    assert_eq!(podman.inspect("busy", "{{.State.Running}}"), "true");
}

#[test]
fn remote_desktop_is_never_opened() {
    let Some(podman) = Podman::find() else { return };
    let ports = podman.setup("desk", "windows");
    drop(up(&podman, "desk"));
    on_loopback_alone(ports.rdp.number());
    wait_for("the guest's hello", LONG, || podman.pod("desk", &["logs"]).run().stdout.contains("hello"));
    drop(podman.pod("desk", &["wait-ready", "--timeout", "3"]).run().exits(10));
    drop(podman.pod("desk", &["status"]).run().exits(0));
    drop(podman.pod("desk", &["exec", "hostname"]).run().exits(125));
    drop(podman.cli(["pod", "list"]).run().exits(0));
    drop(podman.pod("desk", &["restart"]).run().exits(0));
    drop(podman.pod("desk", &["status"]).run().exits(0));
    let seen = podman.storage("desk").join("rdp");
    assert!(!seen.exists(), "somebody connected to the port of remote desktop");
    assert_eq!(podman.opened(), "");
    // the listener does see who comes
    wait_for("the listener to see a connection", LONG, || {
        drop(TcpStream::connect(("127.0.0.1", ports.rdp.number())));
        seen.exists()
    });
    drop(podman.pod("desk", &["down"]).run().exits(0));
    nothing_left(&podman, "desk");
}

#[test]
fn what_changes_in_oem_after_the_installation_is_said() {
    let Some(podman) = Podman::find() else { return };
    let _ports = podman.setup("oem", "windows");
    let note = up(&podman, "oem")["note"].as_str().unwrap().to_owned();
    assert!(note.contains("podlink.exe is not the guest's agent: there is none"), "{note}");
    std::fs::write(podman.storage("oem").join("data.img"), "an installed Windows").unwrap();
    assert_eq!(up(&podman, "oem")["note"], Value::Null, "nothing has changed");
    std::fs::write(podman.dir("oem").join("oem/install.bat"), "echo new\r\n").unwrap();
    let note = up(&podman, "oem")["note"].as_str().unwrap().to_owned();
    assert!(note.contains(r"robocopy \\host.lan\Data\oem C:\OEM /E & C:\OEM\install.bat"), "{note}");
    let handed = podman.dir("oem").join("share/oem/install.bat");
    assert_eq!(std::fs::read_to_string(handed).unwrap(), "echo new\r\n");
    drop(podman.pod("oem", &["down"]).run().exits(0));
    nothing_left(&podman, "oem");
}

#[test]
fn changes_of_the_state_are_told_one_a_line() {
    let Some(podman) = Podman::find() else { return };
    let _ports = podman.setup("watched", "linux");
    let begun = Instant::now();
    let run = podman.pod("watched", &["status", "--watch", "--until", "ready", "--timeout", "2"]).run().exits(10);
    assert!(run.stdout.contains("gone") && run.stdout.lines().count() == 1, "{}", run.stdout);
    assert!(begun.elapsed() < LONG);

    let mut watching = podman.pod("watched", &["status", "--watch", "--json"]).command();
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watching.stdout.take().unwrap()));
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!((&first["state"], &first["previous"]), (&"gone".into(), &Value::Null), "{first}");
    drop(up(&podman, "watched"));
    let second = next();
    // compose makes and starts in one; whether the moment between is seen is luck
    let started = if second["state"] == "created" { next() } else { second };
    assert_eq!(started["state"], "starting", "{started}");
    drop(podman.pod("watched", &["pause"]).run().exits(0));
    let paused = next();
    assert_eq!((&paused["state"], &paused["previous"]), (&"paused".into(), &"starting".into()), "{paused}");

    let pid = rustix::process::Pid::from_raw(i32::try_from(watching.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
}
