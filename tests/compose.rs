//! `compose.yaml` as two other readers see it: a YAML 1.2 parser and PyYAML, which reads 1.1.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::support::{Cli, Port};

/// What has broken other writers.
const HOSTILE: &[&str] = &[
    "yes",
    "NO",
    "~",
    "null",
    "0123",
    "0o17",
    "1e3",
    "0x1F",
    "22:22",
    "12:30:45",
    "2026-11-29",
    "#x",
    "a #b",
    "a: b",
    "a:",
    "\"",
    "'",
    "\\",
    "\\n",
    "{{",
    "{{ x }}",
    "[a",
    "- a",
    "? a",
    "%a",
    "@a",
    "`a",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "a\nb",
    "\n",
    "a\r\nb",
    "\t",
    " a ",
    "🦀",
    "é漢",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{7f}",
    "\u{1b}[0m",
    "$HOME",
    "${HOME}",
    "a$b",
    "a$$b",
    "$",
    "<<",
    "=",
    "---",
    "...",
];

#[derive(Debug, Deserialize)]
struct File {
    services: BTreeMap<String, Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    environment: BTreeMap<String, String>,
    ports: Vec<String>,
}

/// What compose does with a value after it has been read.
fn interpolated(text: &str) -> String {
    assert!(!text.replace("$$", "").contains('$'), "a variable would be replaced in {text:?}");
    text.replace("$$", "$")
}

/// A pod's `compose.yaml` with these for user and password.
fn compose_of(user: &str, password: &str, ports: &[String; 3]) -> String {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("password");
    std::fs::write(&file, format!("{password}\n")).unwrap();
    let [agent, rdp, web] = ports;
    Cli::new(["setup", "--engine", "podman", "--agent-port", agent, "--rdp-port", rdp, "--web-port", web])
        .args(&[&format!("--user={user}"), "--password-file", file.to_str().unwrap()])
        .home(&top.path().join("home"))
        .run()
        .exits(0);
    std::fs::read_to_string(top.path().join("home/windows/compose.yaml")).unwrap()
}

/// A compose front end that can show what it read: its command, where it is here.
fn front_ends() -> Vec<(&'static str, PathBuf)> {
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools/podman-compose/bin/podman-compose");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let docker = std::env::split_paths(&path).map(|folder| folder.join("docker-compose")).find(|file| file.is_file());
    let mut found = Vec::new();
    for (name, program) in [("podman-compose", ours.exists().then_some(ours)), ("docker-compose", docker)] {
        match program {
            Some(program) => found.push((name, program)),
            None => eprintln!("skipped: what {name} reads, for it is not here (tests/tools, Debian's packages)"),
        }
    }
    found
}

#[test]
fn compose_front_ends_read_what_was_meant() {
    let front_ends = front_ends();
    let reserved = [Port::reserve(), Port::reserve(), Port::reserve()];
    let ports = reserved.each_ref().map(|port| port.number().to_string());
    for hostile in
        ["yes", "0123", "1e3", "a: b", "#x", "$HOME", "a$b", "a$$b", "\"", "'", "\\", "{{ x }}", "a\nb", "🦀 é"]
    {
        let text = compose_of(hostile, hostile, &ports);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("compose.yaml");
        std::fs::write(&file, &text).unwrap();
        for (name, program) in &front_ends {
            let output = Command::new(program).arg("-f").arg(&file).arg("config").output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            let shown = String::from_utf8(output.stdout).unwrap();
            let shown = &py_yaml(&[shown]).expect("who has compose has PyYAML")[0]["services"]["guest"];
            let ours: File = serde_yaml::from_str(&text).unwrap();
            for (key, value) in &ours.services["guest"].environment {
                let read = shown["environment"][key].as_str().unwrap_or_else(|| panic!("{name}: {key} is no text"));
                // docker-compose shows a file that could be read again: with `$` doubled
                let read = if *name == "docker-compose" { interpolated(read) } else { read.to_owned() };
                assert_eq!(read, interpolated(value), "{name} {key} of {hostile:?}");
            }
            let published: Vec<&str> =
                shown["ports"].as_array().unwrap().iter().map(|port| port.as_str().unwrap()).collect();
            assert_eq!(published, ours.services["guest"].ports, "{name}");
        }
    }
}

/// The texts as PyYAML reads them, as JSON; `None` where there is none.
fn py_yaml(texts: &[String]) -> Option<Vec<serde_json::Value>> {
    let read = "import sys, json, yaml; print(json.dumps([yaml.safe_load(text) for text in json.load(sys.stdin)]))";
    let mut python = Command::new("python3");
    python.args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().ok()?;
    // where yaml is missing it ends before it reads
    drop(child.stdin.take().unwrap().write_all(&serde_json::to_vec(texts).unwrap()));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("No module named") {
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn hostile_texts_come_back_from_both_readers() {
    let reserved = [Port::reserve(), Port::reserve(), Port::reserve()];
    let ports = reserved.each_ref().map(|port| port.number().to_string());
    // each text once as user and once as password
    let pairs: Vec<(&str, &str)> =
        HOSTILE.iter().zip(HOSTILE.iter().cycle().skip(7)).map(|(user, password)| (*user, *password)).collect();
    let texts: Vec<String> = pairs.iter().map(|(user, password)| compose_of(user, password, &ports)).collect();
    for ((user, password), text) in pairs.iter().zip(&texts) {
        let file: File = serde_yaml::from_str(text).unwrap();
        let env = &file.services["guest"].environment;
        assert_eq!((&*interpolated(&env["USERNAME"]), &*interpolated(&env["PASSWORD"])), (*user, *password));
    }
    let Some(read) = py_yaml(&texts) else {
        eprintln!("skipped: what PyYAML reads, for it is not here");
        return;
    };
    assert_eq!(read.len(), pairs.len());
    for ((user, password), read) in pairs.iter().zip(&read) {
        let env = &read["services"]["guest"]["environment"];
        assert_eq!(interpolated(env["USERNAME"].as_str().unwrap()), *user);
        assert_eq!(interpolated(env["PASSWORD"].as_str().unwrap()), *password);
        assert_eq!(env["USER_PORTS"], "8765");
    }
}

#[test]
fn both_legs_follow_the_one_port_and_nothing_leaves_loopback() {
    let reserved = [Port::reserve(), Port::reserve(), Port::reserve(), Port::reserve()];
    let [agent, rdp, web, other] = reserved.each_ref().map(|port| port.number().to_string());
    let home = tempfile::tempdir().unwrap();
    let setup = |args: &[&str]| {
        Cli::new([&["setup"], args].concat()).home(home.path()).run().exits(0);
        std::fs::read_to_string(home.path().join("windows/compose.yaml")).unwrap()
    };
    let first = setup(&["--engine", "docker", "--agent-port", &agent, "--rdp-port", &rdp, "--web-port", &web]);
    let second = setup(&["--agent-port", &other]);
    for (text, host) in [(first, &agent), (second, &other)] {
        podlink::compose::check_legs(&text, host.parse().unwrap()).unwrap();
        let file: File = serde_yaml::from_str(&text).unwrap();
        let service = &file.services["guest"];
        assert!(service.ports.contains(&format!("127.0.0.1:{host}:8765/tcp")), "{:?}", service.ports);
        assert!(service.ports.contains(&format!("127.0.0.1:{rdp}:3389/udp")), "{:?}", service.ports);
        assert!(service.ports.iter().all(|port| port.starts_with("127.0.0.1:") && port.split(':').count() == 3));
        assert!(!service.environment.contains_key("NETWORK"), "the image chooses, unless it is told");
        assert!(!text.contains(":Z"), "docker relabels nothing");
    }
    let third = setup(&["--network", "user"]);
    assert!(third.contains(r#"NETWORK: "user""#), "{third}");
}
