//! Terminals on Windows, as far as Wine has pseudo consoles: a program in one gets a console of the right kind, but where
//! the agent's own streams are redirected, as they always are, its three standard handles do not lead there, and another
//! size than the first is not taken. So what is typed and what `cmd` says is not seen here; that a terminal comes, ends
//! with its program, and tells how it ended, is.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Terminal, WineAgent, processes, wait_for, wine_calls::PATIENCE};

/// From a program's end to that of the connection.
const SOON: Duration = Duration::from_secs(2);

fn conhosts(agent: &WineAgent) -> usize {
    agent.wine().pids_of("conhost.exe").len()
}

#[test]
fn a_terminal_ends_with_its_program_and_tells_its_code() {
    let Some(agent) = WineAgent::start() else { return };
    let before = conhosts(&agent);
    for n in 0..20 {
        let begun = Instant::now();
        let request = json!({"argv": ["cmd", "/c", "exit 3"], "pty": {"rows": 24, "cols": 80}});
        let heard = agent.attach(&request).rest();
        assert_eq!((heard.rc(), heard.close), (3, Some(1000)), "{n}: {:?}", heard.statuses);
        assert!(heard.err.is_empty());
        let ran = Duration::from_millis(heard.result()["duration_ms"].as_u64().unwrap());
        let after = begun.elapsed().saturating_sub(ran);
        assert!(after < SOON + SOON, "{n}: {after:?} besides what it ran");
    }
    wait_for("the console hosts to end", PATIENCE, || conhosts(&agent) <= before);
}

#[test]
fn what_a_program_draws_on_its_screen_comes() {
    let Some(agent) = WineAgent::start() else { return };
    let mut request = agent.probe(&["console"]);
    request["pty"] = json!({"rows": 24, "cols": 80});
    let heard = agent.attach(&request).rest();
    assert_eq!(heard.rc(), 3);
    assert!(heard.text().contains("on the screen"), "{:?}", heard.text());
}

#[test]
fn a_client_that_vanishes_takes_its_terminal_along() {
    let Some(agent) = WineAgent::start() else { return };
    let before = conhosts(&agent);
    for reset in [false, true] {
        let request = json!({"argv": ["ping", "-n", "630", "127.0.0.1"], "pty": {"rows": 24, "cols": 80}});
        let mut client = agent.attach(&request);
        client.started();
        wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 630").is_empty());
        client.vanish(reset);
        agent.wait_for_processes("-n 630", 0);
    }
    wait_for("the console hosts to end", PATIENCE, || conhosts(&agent) <= before);
    assert_eq!(agent.exec(&json!({ "argv": ["cmd", "/c", "exit 4"] }))["rc"], json!(4));
}

#[test]
fn the_hosts_terminal_is_given_back() {
    let Some(agent) = WineAgent::start() else { return };
    let untouched =
        Terminal::run(std::process::Command::new("true").env("PATH", std::env::var_os("PATH").unwrap()), 24, 80)
            .attributes();
    let mut terminal =
        Terminal::run(&agent.pod(&["exec", "-t", "--", "cmd", "/c", "exit 3"]).env("TERM", "xterm").command(), 24, 80);
    assert_eq!(terminal.end().code(), Some(3), "{}", terminal.shown());
    assert_eq!(terminal.attributes(), untouched);
    // one that runs on is left by detaching, and ended by its id
    let mut terminal = Terminal::run(
        &agent.pod(&["exec", "-it", "--", "ping", "-n", "631", "127.0.0.1"]).env("TERM", "xterm").command(),
        24,
        80,
    );
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 631").is_empty());
    terminal.wait_until_raw();
    terminal.type_keys("\x10\x11");
    assert_eq!(terminal.end().code(), Some(0), "{}", terminal.shown());
    assert_eq!(terminal.attributes(), untouched);
    assert_eq!(agent.wine().pids_of("-n 631").len(), 1);
    let calls = agent.get("/processes").json;
    let running = calls["processes"].as_array().unwrap().iter().find(|call| call["state"] == "running").unwrap();
    let id = running["process_id"].as_str().unwrap();
    assert_eq!(agent.delete(&format!("/processes/{id}")).json["survivors"], json!([]));
    agent.wait_for_processes("-n 631", 0);
}

/// `exec -i` has pipes, which are whole under Wine.
#[test]
fn an_interactive_call_is_talked_with() {
    let Some(agent) = WineAgent::start() else { return };
    let mut request = agent.probe(&["cat"]);
    request["open_stdin"] = json!(true);
    let mut client = agent.attach(&request);
    client.started();
    for word in ["one", "twoé", "three"] {
        client.types(word.as_bytes());
        client.until(word);
    }
    client.close_stdin();
    assert_eq!(client.rest().rc(), 0);
    // the command processor, a line at a time: Wine's forgets what lies in the pipe behind the first
    let mut client = agent.attach(&json!({ "argv": ["cmd", "/q"], "open_stdin": true }));
    client.started();
    client.types(b"echo said\r\n");
    client.until("said\r\n");
    client.types(b"exit 3\r\n");
    assert_eq!(client.rest().rc(), 3);
    let mut child = agent.pod(&["exec", "-i", "--", "cmd", "/c", "ping -n 632 127.0.0.1"]).command();
    let mut child = child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for("its program", PATIENCE, || !agent.wine().pids_of("-n 632").is_empty());
    processes::signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    agent.wait_for_processes("-n 632", 0);
}
