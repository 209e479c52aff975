//! An agent on Windows, and the host's tool that drives it.

use crate::support::{WineAgent, wait_for};
use std::time::Duration;

#[test]
fn it_starts_says_who_it_is_and_the_host_finds_it_ready() {
    let Some(agent) = WineAgent::start() else { return };
    let health = agent.get("/health");
    assert_eq!((health.status, &health.json["os"], &health.json["arch"]), (200, &"windows".into(), &"x86_64".into()));
    let whoami = agent.get("/whoami").json;
    assert!(!whoami["user"].as_str().unwrap().is_empty(), "{whoami}");
    assert_eq!(whoami["version"], env!("CARGO_PKG_VERSION"));

    let ready = agent.pod(&["wait-ready", "--timeout", "20", "--json"]).run().exits(0);
    assert_eq!(ready.json()["ready"], true, "{}", ready.stdout);
    println!(
        "measured: `podlink pod wait-ready` of a ready agent under Wine: {:.0} ms",
        ready.took.as_secs_f64() * 1e3
    );

    // a wrong token is refused, and neither is ever logged
    let wrong = "0".repeat(64);
    let answer = crate::support::Http::new(agent.port(), "GET", "/whoami").bearer(&wrong).send();
    answer.is_error(401, "unauthorized");
    assert!(!agent.log().contains(agent.token().expose().as_str()) && !agent.log().contains(&wrong));
}

#[test]
fn a_world_ends_with_all_that_is_in_it() {
    let Some(agent) = WineAgent::start() else { return };
    let port = agent.port();
    let pids: Vec<u32> = agent.wine().processes().into_iter().map(|(pid, _)| pid).collect();
    assert!(pids.len() > 3 && pids.contains(&agent.pid()), "{:?}", agent.wine().processes());
    let folder = agent.wine().folder().to_owned();
    drop(agent);
    wait_for("the end of the world's processes", Duration::from_secs(10), || {
        pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    });
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
}

#[test]
fn the_host_runs_programs_and_hears_their_exit_codes() {
    let Some(agent) = WineAgent::start() else { return };
    for (code, heard) in [(0, 0), (3, 3), (255, 255), (256, 1)] {
        let run = agent.pod(&["exec", "--shell", "cmd", &format!("exit {code}")]).run().exits(heard);
        assert_eq!(run.stdout, "", "{}", run.stderr);
    }
    // an access violation, as Windows tells it
    let run = agent.pod(&["exec", "--json", "--shell", "cmd", "exit -1073741819"]).run();
    assert_eq!(run.json()["rc"], 0xC000_0005_u32, "{} {}", run.stdout, run.stderr);
    let run = agent.pod(&["exec", "--shell", "cmd", "echo out& echo err 1>&2& exit 7"]).run().exits(7);
    assert_eq!((run.stdout.trim_end(), run.stderr.lines().next().unwrap().trim_end()), ("out", "err"));

    // programs' own arguments, byte for byte
    let exe = agent.wine().podlink();
    let run = agent.pod(&["exec", "--", &exe, "--version"]).run().exits(0);
    assert_eq!(run.stdout.trim_end(), concat!("podlink ", env!("CARGO_PKG_VERSION")));
}
