//! The wait for readiness against guests that come late, half, wrongly or not at all: fakes, since the real agent is
//! none of these.

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use podlink::{
    host::{AgentClient, ErrorKind, Result, WaitSettings, WaitStage, engine::ContainerState, wait_ready},
    protocol::Health,
    token::Token,
};

use crate::support::{
    Cli, Port,
    fake::{Fake, Reply, client, health, http, proved, settings as client_settings, whoami, write_pod},
};

fn settings(timeout: Duration) -> WaitSettings {
    WaitSettings {
        timeout,
        first_pause: Duration::from_millis(5),
        max_pause: Duration::from_millis(20),
        engine_interval: Duration::from_millis(50),
        engine_deadline: Duration::from_millis(200),
        foreign_patience: Duration::from_millis(300),
        mismatch_patience: Duration::from_millis(200),
    }
}

async fn wait(client: &AgentClient, state: ContainerState, timeout: Duration) -> (Result<Health>, Vec<WaitStage>) {
    let mut stages: Vec<WaitStage> = Vec::new();
    let waited = wait_ready(
        client,
        || async { Ok(state) },
        &settings(timeout),
        |progress| {
            if stages.last() != Some(&progress.stage) {
                stages.push(progress.stage.clone());
            }
        },
    )
    .await;
    (waited, stages)
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);

/// R-01, and the whole way of a guest that boots.
#[tokio::test]
async fn a_booting_guest_is_followed_to_the_end() {
    let token = Token::generate().unwrap();
    let (holder, tries) = (token.clone(), AtomicUsize::new(0));
    let fake = Fake::start(move |request, _| {
        if request.path == "/whoami" {
            return Reply::Bytes(whoami());
        }
        match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Close,
            1 => Reply::Silence,
            2 => Reply::Bytes(http(502, "", "<html>")),
            3 => Reply::Bytes(http(200, "", r#"{"ok":true}"#)),
            4 => Reply::Bytes(http(503, "", &health("a", "waiting_for_token"))),
            5 => Reply::Bytes(proved(request, &holder, "a", "installing")),
            _ => Reply::Bytes(proved(request, &holder, "a", "ready")),
        }
    });
    let (waited, stages) = wait(&client(&fake, &token), ContainerState::Running, LONG).await;
    assert!(waited.unwrap().ok);
    let said: Vec<String> = stages.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "port forwarded, agent not answering",
            "something else answers on the agent's port: a web page",
            "something else answers on the agent's port: JSON that is not an agent's",
            "the agent waits for its token",
            r"installing, waits for C:\podlink\state\install.done",
            "ready",
        ]
    );
}

#[tokio::test]
async fn what_may_still_become_an_agent_is_waited_for() {
    let token = Token::generate().unwrap();
    for (reply, stage) in [
        (Reply::Close, "agent not answering"),
        (Reply::Silence, "agent not answering"),
        (Reply::Bytes(http(502, "", "<html>")), "web page"),
        (Reply::Bytes(b"garbage\r\n\r\n".to_vec()), "not HTTP"),
    ] {
        let fake = Fake::start(move |_, _| reply.clone());
        let begun = Instant::now();
        let error = wait(&client(&fake, &token), ContainerState::Running, SHORT).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitTimedOut, "{error}");
        assert!(error.to_string().contains(stage) && error.hint().is_some(), "{error}");
        let took = begun.elapsed();
        assert!(took >= SHORT && took < SHORT + Duration::from_secs(2), "the whole time-out and no more: {took:?}");
        fake.never_saw(&token);
    }
}

#[tokio::test]
async fn a_foreign_program_ends_it_in_time() {
    let token = Token::generate().unwrap();
    for answer in [http(200, "", r#"{"ok":true}"#), http(404, "", "no"), http(200, "", &health("copied", "ready"))] {
        let fake = Fake::start(move |_, _| Reply::Bytes(answer.clone()));
        let begun = Instant::now();
        let error = wait(&client(&fake, &token), ContainerState::Running, LONG).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignProgram, "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(300), "not before its patience ends");
        fake.never_saw(&token);
    }
}

/// R-03: green health, another token.
#[tokio::test]
async fn another_token_ends_it_with_its_own_kind() {
    let (ours, theirs) = (Token::generate().unwrap(), Token::generate().unwrap());
    let fake = Fake::start(move |request, _| Reply::Bytes(proved(request, &theirs, "a", "ready")));
    let (waited, stages) = wait(&client(&fake, &ours), ContainerState::Running, LONG).await;
    let error = waited.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenMismatch);
    assert_eq!(stages, [WaitStage::TokenMismatch]);
    fake.never_saw(&ours);
}

/// An agent that is just reading the changed file has a moment.
#[tokio::test]
async fn a_token_that_arrives_late_is_no_mismatch() {
    let (ours, theirs) = (Token::generate().unwrap(), Token::generate().unwrap());
    let (holder, tries) = (ours.clone(), AtomicUsize::new(0));
    let fake = Fake::start(move |request, _| match request.path.as_str() {
        "/whoami" => Reply::Bytes(whoami()),
        _ if tries.fetch_add(1, Ordering::SeqCst) < 2 => Reply::Bytes(proved(request, &theirs, "a", "ready")),
        _ => Reply::Bytes(proved(request, &holder, "a", "ready")),
    });
    assert!(wait(&client(&fake, &ours), ContainerState::Running, LONG).await.0.is_ok());
}

#[tokio::test]
async fn a_failed_installation_ends_it() {
    let token = Token::generate().unwrap();
    let holder = token.clone();
    let fake = Fake::start(move |request, _| Reply::Bytes(proved(request, &holder, "a", "install_failed")));
    let error = wait(&client(&fake, &token), ContainerState::Running, LONG).await.0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InstallFailed);
}

/// R-02, R-06: no container, one that ends meanwhile, and an engine that cannot be asked.
#[tokio::test]
async fn a_container_that_is_gone_ends_it() {
    let token = Token::generate().unwrap();
    let port = Port::reserve();
    let client = AgentClient::new(([127, 0, 0, 1], port.number()).into(), token, client_settings()).unwrap();
    for state in [ContainerState::Absent, ContainerState::Exited { code: Some(1) }] {
        let begun = Instant::now();
        let error = wait(&client, state, LONG).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoContainer, "{state:?}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    let asked = Mutex::new(0);
    let dies = || async {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        Ok(if *asked < 4 { ContainerState::Running } else { ContainerState::Exited { code: None } })
    };
    let error = wait_ready(&client, dies, &settings(LONG), |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoContainer);

    let broken = || async { Err(podlink::host::Error::new(ErrorKind::Engine, "podman is not installed")) };
    let error = wait_ready(&client, broken, &settings(LONG), |_| {}).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Engine, "podman is not installed"));

    // an engine that hangs holds up neither the tries nor the end
    let begun = Instant::now();
    let error = wait_ready(&client, std::future::pending::<Result<ContainerState>>, &settings(SHORT), |_| {}).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::WaitTimedOut);
    assert!(begun.elapsed() < SHORT + Duration::from_secs(1));
}

fn wait_cli(home: &Path, timeout: &str) -> Cli {
    Cli::new(["pod", "wait-ready", "--pod", "fake", "--timeout", timeout]).home(home)
}

#[test]
fn the_command_tells_by_text_json_and_code() {
    let home = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let token = write_pod(home.path(), port.number(), "");
    let (holder, tries) = (token, AtomicUsize::new(0));
    let fake = Fake::start_on(port, move |request, _| match request.path.as_str() {
        "/whoami" => Reply::Bytes(whoami()),
        _ if tries.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Bytes(proved(request, &holder, "a", "installing")),
        _ => Reply::Bytes(proved(request, &holder, "a", "ready")),
    });
    let run = wait_cli(home.path(), "20").run().exits(0);
    assert!(run.stderr.contains(r"installing, waits for C:\podlink\state\install.done"), "{}", run.stderr);
    assert!(run.stdout.starts_with("ready after"), "{}", run.stdout);
    let run = Cli::new(["pod", "wait-ready", "--json"]).home(home.path()).env("PODLINK_POD", "fake").run().exits(0);
    assert_eq!(run.json()["ready"], true);
    assert_eq!(run.json()["health"]["agent_id"], "a");
    assert_eq!(run.stderr, "");
    drop(fake);
}

#[test]
fn each_end_has_its_code() {
    for (stage, code, word) in [("installing", 10, "wait_timed_out"), ("install_failed", 14, "install_failed")] {
        let home = tempfile::tempdir().unwrap();
        let port = Port::reserve();
        let token = write_pod(home.path(), port.number(), "");
        let _fake = Fake::start_on(port, move |request, _| Reply::Bytes(proved(request, &token, "a", stage)));
        let run = wait_cli(home.path(), "1").run().exits(code);
        assert!(run.stderr.lines().last().unwrap().starts_with("podlink: "), "{}", run.stderr);
        let run = Cli::new(["pod", "wait-ready", "--pod", "fake", "--timeout", "1", "--json"])
            .home(home.path())
            .run()
            .exits(code);
        assert_eq!(run.json()["error"], word);
        assert_eq!(run.json()["exit_code"], code);
    }
    let (home, port) = (tempfile::tempdir().unwrap(), Port::reserve());
    let _ours = write_pod(home.path(), port.number(), "");
    let theirs = Token::generate().unwrap();
    let _fake = Fake::start_on(port, move |request, _| Reply::Bytes(proved(request, &theirs, "a", "ready")));
    let run = wait_cli(home.path(), "20").run().exits(12);
    assert!(run.stderr.contains("token mismatch") && run.stderr.contains("podlink setup"), "{}", run.stderr);
}
