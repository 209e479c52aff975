//! An agent that is kept alive under Wine: by its supervisor, and by the service manager; and one that is restarted from
//! inside its own call.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    supervise::ready_on,
    support::{WineAgent, WineSetup, cli::Run, processes, wait_for, wine::windows_path},
};

const PATIENCE: Duration = Duration::from_mins(1);

/// What an issue promises.
const BACK_WITHIN: Duration = Duration::from_secs(5);

fn supervised() -> Option<WineAgent> {
    WineAgent::with(WineSetup::new(), &["--supervise"])
}

/// The id of the agent that is ready, where there is one.
fn ready(agent: &WineAgent) -> Option<String> {
    ready_on(agent.port())
}

#[track_caller]
fn another(agent: &WineAgent, than: &str) -> String {
    let mut id = None;
    wait_for("another agent", PATIENCE, || {
        id = ready(agent).filter(|id| id != than);
        id.is_some()
    });
    id.unwrap()
}

/// The agent under its supervisor, as this machine counts.
#[track_caller]
fn child(agent: &WineAgent) -> u32 {
    let children = agent.wine().pids_of("--supervised");
    assert_eq!(children.len(), 1, "{:?}", agent.wine().processes());
    children[0]
}

fn supervisor(agent: &WineAgent) -> u32 {
    let (all, child) = (agent.wine().pids_of("podlink.exe"), child(agent));
    let others: Vec<u32> = all.into_iter().filter(|pid| *pid != child).collect();
    assert_eq!(others.len(), 1, "{:?}", agent.wine().processes());
    others[0]
}

/// Another supervisor for the port of this agent.
fn second(agent: &WineAgent) -> Run {
    let listen = format!("127.0.0.1:{}", agent.port());
    let [token, log] = ["token", "second.log"].map(|name| windows_path(&agent.wine().folder().join(name)));
    let args = ["agent", "serve", "--supervise", "--listen", &listen, "--token-file", &token, "--log-file", &log];
    agent.wine().run(&agent.wine().podlink(), &args)
}

#[test]
fn a_killed_agent_is_back_within_seconds_and_once() {
    let Some(agent) = supervised() else { return };
    let mut id = ready(&agent).unwrap();
    for restarts in 1..=2 {
        let killed = child(&agent);
        let begun = Instant::now();
        processes::kill(&[killed]);
        let new = another(&agent, &id);
        assert!(begun.elapsed() < BACK_WITHIN, "took {:?}", begun.elapsed());
        println!("measured: a killed agent under Wine is back after {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
        assert_ne!(child(&agent), killed);
        id = new;
        wait_for("both to have said so", PATIENCE, || agent.log().matches("agent started").count() > restarts);
        let log = agent.log();
        assert_eq!(log.matches("the agent is gone: ").count(), restarts, "{log}");
        assert_eq!(log.matches("agent started").count(), restarts + 1, "{log}");
    }
    assert_eq!(agent.get("/whoami").json["mode"], "manual");
    drop(agent.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));

    // whoever comes second says so and ends well; the first is untouched
    let run = second(&agent).exits(0);
    assert!(run.stdout.contains("an agent already runs") && run.stdout.contains(&id), "{run:?}");
    assert_eq!(ready(&agent), Some(id));
    child(&agent);
}

#[test]
fn an_agent_whose_supervisor_is_killed_goes_on_and_says_so() {
    let Some(agent) = supervised() else { return };
    let id = ready(&agent).unwrap();
    processes::kill(&[supervisor(&agent)]);
    wait_for("the agent to see it", PATIENCE, || agent.log().contains("the supervisor is gone"));
    drop(agent.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));
    assert_eq!(ready(&agent).as_deref(), Some(&*id));
    // nobody would start it again
    agent.post("/agent/restart", &json!({})).is_error(501, "unsupported");
    let run = second(&agent).exits(0);
    assert!(run.stdout.contains(&id), "{run:?}");
}

#[test]
fn it_is_restarted_by_its_caller_and_no_answer_is_lost() {
    let Some(agent) = supervised() else { return };
    let id = ready(&agent).unwrap();
    let body = json!({"argv": ["cmd", "/d", "/c", "echo begun& ping -n 3 127.0.0.1 >nul& echo done& exit 3"]});
    let call = agent.authorized("POST", "/exec").json(&body);
    let call = std::thread::spawn(move || call.send());
    wait_for("the call", PATIENCE, || !agent.wine().pids_of("ping -n 3").is_empty());
    let accepted = agent.post("/agent/restart", &json!({}));
    assert_eq!((accepted.status, &accepted.json["agent_id"]), (202, &json!(id)));
    let answer = call.join().unwrap();
    assert_eq!((&answer.json["rc"], &answer.json["stdout"]), (&json!(3), &json!("begun\r\ndone\r\n")));
    let next = another(&agent, &id);

    let run = agent.pod(&["restart", "--agent", "--json"]).run().exits(0);
    let said: Value = run.json();
    assert_eq!(said["before"], next.as_str());
    assert_eq!(ready(&agent).as_deref(), said["agent_id"].as_str());
    let log = agent.log();
    assert_eq!(log.matches("to be started again, as it was asked to").count(), 2, "{log}");
    assert!(!log.contains("the agent is gone"), "{log}");
    child(&agent);
}

/// The service manager has the real one's interface; it takes no order to count bad exit codes.
#[test]
fn as_a_service_it_is_started_asked_and_stopped_by_the_service_manager() {
    // one that is there already would hold the port
    let Some(agent) = WineAgent::start() else { return };
    let wine = agent.wine();
    let listen = format!("127.0.0.1:{}", agent.port());
    // Wine ends with its last program, and counts no service as one
    let mut other = wine.command("ping", &["-n", "600", "127.0.0.1"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("a program that stays", PATIENCE, || !wine.pids_of("-n 600").is_empty());
    processes::kill(&[agent.pid()]);
    wait_for("the agent's end", PATIENCE, || !agent.listens());
    let [token, log] = ["token", "service.log"].map(|name| windows_path(&wine.folder().join(name)));
    let line = format!(
        "\"{}\" agent serve --service --supervise --listen {listen} --token-file {token} --log-file {log}",
        wine.podlink()
    );
    wine.run("sc.exe", &["create", "podlink-test", "binPath=", &line]).exits(0);
    wine.run("sc.exe", &["start", "podlink-test"]).exits(0);
    wait_for("the service's agent", PATIENCE, || ready(&agent).is_some());
    let whoami = agent.get("/whoami").json;
    assert_eq!(whoami["mode"], "service");
    drop(agent.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));

    let id = ready(&agent).unwrap();
    processes::kill(&[child(&agent)]);
    let id = another(&agent, &id);
    assert_eq!(agent.post("/agent/restart", &json!({})).json["agent_id"], id.as_str());
    another(&agent, &id);
    assert_eq!(agent.get("/whoami").json["mode"], "service");

    wine.run("sc.exe", &["stop", "podlink-test"]).exits(0);
    wait_for("the service's end", PATIENCE, || wine.pids_of("podlink.exe").is_empty());
    assert!(!agent.listens());
    let log = std::fs::read_to_string(wine.folder().join("service.log")).unwrap();
    assert!(log.contains("has ended in order"), "{log}");
    wine.run("sc.exe", &["delete", "podlink-test"]).exits(0);
    processes::kill(&wine.pids_of("-n 600"));
    other.wait().unwrap();
}
