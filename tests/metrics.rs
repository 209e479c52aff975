//! `GET /system/info` and `GET /system/metrics`, held against what this machine says of itself and against Prometheus' own
//! parsers; `pod info` and `pod stats`.

use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use podlink::protocol::{Metrics, SystemInfo};
use serde_json::{Value, json};

use crate::support::{Agent, LocalPod, Terminal, wait_for};

const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn metrics(agent: &Agent) -> Metrics {
    let answer = agent.get("/system/metrics");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    serde_json::from_value(answer.json).unwrap()
}

#[track_caller]
fn info(agent: &Agent, query: &str) -> SystemInfo {
    let answer = agent.get(&format!("/system/info{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_value(answer.json).unwrap()
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_machine_is_as_its_own_programs_say() {
    let agent = Agent::start();
    let seen = info(&agent, "");
    assert_eq!(seen.hostname, said("uname", &["-n"]));
    assert_eq!(seen.kernel, Some(said("uname", &["-r"])));
    assert_eq!(seen.arch, said("uname", &["-m"]));
    assert_eq!(seen.cpus.to_string(), said("nproc", &["--all"]));
    let df = said("df", &["--block-size=1", "--output=size", "/"]);
    let root = seen.disks.iter().find(|disk| disk.mount == "/").unwrap();
    assert_eq!(Some(root.size_bytes.to_string().as_str()), df.split_whitespace().last());
    let release = said("sh", &["-c", ". /etc/os-release && echo \"$PRETTY_NAME\""]);
    assert_eq!(seen.os_name, release);
    let passed = Duration::from_millis(seen.uptime_ms).as_secs_f64();
    let uptime = said("cut", &["-d", " ", "-f", "1", "/proc/uptime"]).parse::<f64>().unwrap();
    assert!((0.0..20.0).contains(&(uptime - passed)), "{uptime} {passed}");
    assert_eq!((seen.packages, seen.packages_error), (None, None));
}

#[test]
fn packages_are_those_that_the_systems_own_list_has() {
    if Command::new("dpkg-query").arg("--version").output().is_err() {
        eprintln!("skipped: this system has no dpkg-query");
        return;
    }
    let agent = Agent::start();
    let seen = info(&agent, "?packages=1").packages.unwrap();
    let count = said("sh", &["-c", "dpkg-query -W -f '${db:Status-Status}\\n' | grep -cx installed"]);
    assert_eq!(seen.len().to_string(), count);
    let dpkg = seen.iter().find(|package| package.name == "dpkg").unwrap();
    assert_eq!(dpkg.version, said("dpkg-query", &["-W", "-f", "${Version}", "dpkg"]));
    assert_eq!(info(&agent, "?packages=0").packages, None);
    assert_eq!(agent.get("/system/info?packages=maybe").json["error"], "bad_request");
}

/// A folder with one program of this name in it.
fn with_program(name: &str, script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn launched(path: &Path, flags: &[&str]) -> Agent {
    Agent::launch(flags, &[("PATH", path.to_str().unwrap())])
}

#[test]
fn a_list_of_packages_that_hangs_fails_or_floods_costs_only_itself() {
    let hangs = with_program("dpkg-query", "exec /bin/sleep 600");
    let agent = launched(hangs.path(), &["--snapshot-deadline", "2500"]);
    let begun = Instant::now();
    let seen = info(&agent, "?packages=1");
    assert!(begun.elapsed() < SOON);
    assert!(seen.packages.is_none() && seen.cpus > 0, "{seen:?}");
    assert!(seen.packages_error.as_ref().unwrap().contains("did not end within 2.0 s"), "{seen:?}");
    wait_for("the program to be killed", SOON, || {
        let list = agent.get("/system/processes").json;
        let left = |process: &Value| process["ppid"] == agent.pid() && process["argv"][1] == "600";
        !list["processes"].as_array().unwrap().iter().any(left)
    });

    let fails = with_program("dpkg-query", "exit 3");
    let seen = info(&launched(fails.path(), &[]), "?packages=1");
    assert!(seen.packages_error.unwrap().contains("exit status: 3"));

    let floods = with_program("dpkg-query", "exec /usr/bin/yes 0123456789");
    let seen = info(&launched(floods.path(), &[]), "?packages=1");
    assert!(seen.packages_error.unwrap().contains("more than"));

    let none = tempfile::tempdir().unwrap();
    let seen = info(&launched(none.path(), &[]), "?packages=1");
    assert!(seen.packages_error.unwrap().contains("neither dpkg-query nor rpm"));
}

#[test]
fn rpm_is_asked_where_there_is_no_dpkg() {
    let rpm = with_program("rpm", r#"[ "$1" = -qa ] && printf 'bash\t0:5.2-1\tx86_64\nkernel\t6.1-2\tx86_64\n'"#);
    let packages = info(&launched(rpm.path(), &[]), "?packages=1").packages.unwrap();
    let seen: Vec<_> = packages.iter().map(|package| (package.name.as_str(), package.version.as_str())).collect();
    assert_eq!(seen, [("bash", "0:5.2-1"), ("kernel", "6.1-2")]);
}

#[test]
fn the_agent_counts_what_it_does() {
    let agent = Agent::with(&["--exec-slots", "1"]);
    let before = metrics(&agent).agent;
    let sh = |script: &str| json!({"argv": ["sh", "-c", script]});
    assert_eq!(agent.post("/exec", &sh("printf 12345; printf 678 >&2")).status, 200);
    assert_eq!(agent.post("/exec", &sh("exit 7")).status, 200);
    let slow = json!({"argv": ["sh", "-c", "sleep 600 & wait"], "timeout_sec": 0.2});
    assert_eq!(agent.post("/exec", &slow).json["rc"], 124);
    assert_eq!(agent.post("/exec", &json!({"argv": ["/no/such/program"]})).status, 422);
    assert_eq!(agent.http("GET", "/whoami").bearer(&"0".repeat(64)).send().status, 401);
    assert_eq!(agent.http("GET", "/nowhere").send().status, 401);
    assert_eq!(agent.get("/nowhere").status, 404);

    let held = agent.spawn(&json!({"argv": ["cat"], "open_stdin": true}));
    let _running = agent.begin_post("/exec", &json!({"argv": ["sleep", "600"]}), &[]);
    wait_for("both to run", SOON, || metrics(&agent).agent.calls_running == 2);
    let queued = agent.begin_post("/exec", &json!({"argv": ["true"]}), &[]);
    wait_for("the third to wait", SOON, || metrics(&agent).agent.calls_queued == 1);
    let refused = agent.post("/exec", &json!({"argv": ["true"], "queue": false}));
    assert_eq!(refused.status, 409, "{refused:?}");

    let now = metrics(&agent).agent;
    let calls = [
        now.calls.started - before.calls.started,
        now.calls.succeeded,
        now.calls.failed,
        now.calls.timed_out,
        now.calls.spawn_failed,
        now.calls.refused,
        now.calls.cancelled + now.calls.stopped + now.calls.faulty,
    ];
    assert_eq!(calls, [6, 1, 1, 1, 1, 1, 0], "{now:?}");
    assert_eq!((now.output_bytes, now.auth_failures, now.survivors), (8, 2, 0), "{now:?}");
    assert!(now.killed >= 2, "the shell and its sleep: {now:?}");
    assert_eq!(now.requests.server_error, before.requests.server_error);
    assert_eq!(now.requests.client_error - before.requests.client_error, 5, "{now:?}");
    assert!(now.connections > before.connections && now.connections_open >= 3, "{now:?}");
    assert!(now.open_files > 5 && now.resident_bytes > 1 << 20 && now.uptime_seconds > before.uptime_seconds);

    drop(queued);
    assert_eq!(agent.delete(&format!("/processes/{held}")).status, 200);
    wait_for("those to be counted that lost their caller", SOON, || {
        let now = metrics(&agent).agent;
        now.calls.cancelled == 2 && now.calls_queued == 0 && now.requests.lost >= 1
    });
}

/// Output is counted as it comes, also that of a job that nobody reads and that never ends.
#[test]
fn output_is_counted_as_it_comes() {
    let agent = Agent::start();
    let job = agent.spawn(&json!({"argv": ["sh", "-c", "head -c 5000000 /dev/zero; sleep 600"]}));
    wait_for("all of it to be counted", SOON, || metrics(&agent).agent.output_bytes == 5_000_000);
    assert_eq!(agent.delete(&format!("/processes/{job}")).status, 200);
}

#[test]
fn they_answer_before_the_guest_is_ready_and_not_without_a_token() {
    let agent = Agent::launch_with_token(&["--ready-file", "/no/such/file"], &[], true);
    for path in ["/system/info", "/system/metrics", "/system/time"] {
        wait_for("the token to be taken", SOON, || agent.get(path).status == 200);
        assert_eq!(agent.http("GET", path).send().status, 401, "{path}");
    }
    let without = Agent::launch_with_token(&[], &[], false);
    assert_eq!(without.get("/system/metrics").status, 503);
}

const PARSE: &str = r#"
import json, sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as strict
text, kind = json.load(sys.stdin)
families = list((strict if kind == "openmetrics" else parser).text_string_to_metric_families(text))
print(json.dumps([[f.name, f.type, f.documentation, [[s.name, s.labels, s.value] for s in f.samples]] for f in families]))
"#;

/// Families as Prometheus' own library for Python reads them: name, type, help, samples.
fn parsed(python: &Path, text: &str, kind: &str) -> Value {
    let mut command = Command::new(python);
    command.args(["-c", PARSE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!([text, kind]).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn prometheus_reads_the_text() {
    let given = std::env::var_os("PODLINK_TEST_PROMETHEUS").map(std::path::PathBuf::from);
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools").join("prometheus-client/bin/python");
    let Some(python) = given.or_else(|| made.exists().then_some(made)) else {
        eprintln!("skipped: tests/tools/prometheus-client has not been run, and PODLINK_TEST_PROMETHEUS names nothing");
        return;
    };
    let agent = Agent::start();
    assert_eq!(agent.post("/exec", &json!({"argv": ["echo", "ok"]})).status, 200);
    let json = metrics(&agent);
    for (kind, accept, content_type) in [
        ("prometheus", "text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "openmetrics",
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ] {
        let answer = agent.call("GET", "/system/metrics", &[("accept", accept)], b"").answer();
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(content_type)), "{answer:?}");
        let families = parsed(&python, std::str::from_utf8(&answer.body).unwrap(), kind);
        let families = families.as_array().unwrap();
        assert!(families.len() > 30, "{families:?}");
        let mut names: Vec<&str> = families.iter().map(|family| family[0].as_str().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), families.len(), "each name once");
        for family in families {
            assert!(matches!(family[1].as_str(), Some("counter" | "gauge")), "{family}");
            assert!(family[2].as_str().is_some_and(|help| help.ends_with('.')), "{family}");
        }
        let value = |sample: &str, labels: &Value| -> f64 {
            let samples = families.iter().flat_map(|family| family[3].as_array().unwrap());
            let mut found = samples.filter(|found| found[0] == sample && &found[1] == labels);
            let value = found.next().unwrap_or_else(|| panic!("no {sample}{labels}"))[2].as_f64().unwrap();
            assert!(found.next().is_none(), "{sample}{labels} twice");
            value
        };
        assert_eq!(value("podlink_agent_calls_ended_total", &json!({"outcome": "succeeded"})).to_string(), "1");
        assert_eq!(value("podlink_agent_output_bytes_total", &json!({})).to_string(), "3");
        assert_eq!(value("podlink_guest_cpus", &json!({})).to_string(), json.cpus.to_string());
        assert!(value("podlink_guest_cpu_seconds_total", &json!({"mode": "user"})) >= json.cpu_seconds.user);
        let total = value("podlink_guest_memory_bytes", &json!({"kind": "total"}));
        assert_eq!(total.to_string(), json.memory.total.to_string());
        let root = value("podlink_guest_filesystem_size_bytes", &json!({"mount": "/"}));
        assert_eq!(root.to_string(), json.disks.iter().find(|disk| disk.mount == "/").unwrap().size_bytes.to_string());
        assert!(value("podlink_guest_network_receive_bytes_total", &json!({"interface": "lo"})) > 0.0);
        assert!(value("podlink_agent_build", &json!({"version": env!("CARGO_PKG_VERSION")})) > 0.0);
    }
}

/// Many that ask at once share looks, and none is held up for long.
#[test]
fn many_scrapers_at_once_are_served() {
    let agent = Agent::start();
    let asked: Vec<_> = (0..64).map(|_| agent.call("GET", "/system/metrics", &[], b"")).collect();
    for pending in asked {
        assert_eq!(pending.answer().status, 200);
    }
}

#[test]
fn pod_info_and_stats_show_it() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["info"]).run().exits(0);
    assert!(run.stdout.contains(&format!("host name  {}", said("uname", &["-n"]))), "{}", run.stdout);
    assert!(run.stdout.contains("\nkernel     ") && run.stdout.contains("\ndisk       /  "), "{}", run.stdout);
    let run = pod.pod(&["info", "--packages", "--json"]).run().exits(0);
    let json = run.json();
    assert!(json["packages"].is_array() || json["packages_error"].is_string(), "{json}");

    let run = pod.pod(&["stats"]).run().exits(0);
    let cpu = run.stdout.lines().next().unwrap();
    assert!(cpu.starts_with("cpu ") && cpu.contains(" % of "), "a rate, of two looks: {}", run.stdout);
    assert!(
        run.stdout.contains("\nnetwork   received ") && run.stdout.contains("\ncalls     0 run, 0 wait"),
        "{}",
        run.stdout
    );
    let json = pod.pod(&["stats", "--json"]).run().exits(0).json();
    assert_eq!(json["agent"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn pod_stats_is_live_on_a_terminal() {
    let pod = LocalPod::ready();
    let mut terminal = Terminal::run(&pod.pod(&["stats", "--interval", "0.2"]).command(), 40, 100);
    terminal.wait_for(" % of ");
    terminal.wait_for("q quits");
    terminal.type_keys("q");
    assert!(terminal.end().success());
}
