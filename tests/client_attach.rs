//! The client's attached calls with the real agent.

use std::time::{Duration, Instant};

use podlink::{
    host::{AgentClient, AttachEvent, Attached, AttachedOutput, ClientSettings, Error, ErrorKind},
    protocol::{AttachRequest, ExecRequest, ExecResult, ProcessMode, Pty},
    token::Token,
};

use crate::support::Agent;

fn client(agent: &Agent, ping: Duration) -> AgentClient {
    let settings = ClientSettings { attach_ping: ping, ..ClientSettings::DEFAULT };
    let token = Token::parse(agent.token().as_bytes()).unwrap();
    AgentClient::new(([127, 0, 0, 1], agent.port()).into(), token, settings).unwrap()
}

const PING: Duration = ClientSettings::DEFAULT.attach_ping;

fn sh(script: &str, pty: Option<Pty>) -> AttachRequest {
    let argv = Some(["sh", "-c", script].map(String::from).to_vec());
    AttachRequest { exec: ExecRequest { argv, ..ExecRequest::default() }, pty }
}

/// What an attached call has said so far.
#[derive(Debug, Default)]
struct All {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    gaps: usize,
    detached: Option<u64>,
    exit: Option<ExecResult>,
}

impl All {
    /// Takes in one event; false at the end.
    async fn take(&mut self, output: &mut AttachedOutput) -> Result<bool, Error> {
        match output.next().await {
            None => return Ok(false),
            Some(event) => match event? {
                AttachEvent::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
                AttachEvent::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
                AttachEvent::Gap(_) => self.gaps += 1,
                AttachEvent::Detached { offset } => self.detached = Some(offset),
                AttachEvent::Exit(result) => self.exit = Some(result),
            },
        }
        Ok(true)
    }

    /// Until this has been said on stdout.
    async fn until(&mut self, output: &mut AttachedOutput, said: &str) {
        while !String::from_utf8_lossy(&self.stdout).contains(said) {
            assert!(self.take(output).await.unwrap(), "it never said {said:?} but {self:?}");
        }
    }
}

async fn all(attached: Attached) -> Result<All, Error> {
    let (_input, mut output) = attached.split();
    let mut all = All::default();
    while all.take(&mut output).await? {}
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_through_a_program_and_back() {
    let agent = Agent::start();
    let attached = client(&agent, PING).attach(&sh("echo begun >&2; cat; exit 7", None)).await.unwrap();
    assert!(attached.process_id().starts_with("p-"));
    let (mut input, mut output) = attached.split();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let sent = bytes.clone();
    let writing = tokio::spawn(async move {
        input.write(&sent).await.unwrap();
        input.close_stdin().await.unwrap();
        input
    });
    let mut all = All::default();
    while all.take(&mut output).await.unwrap() {}
    writing.await.unwrap();
    assert!(all.stdout == bytes, "{} bytes", all.stdout.len());
    assert_eq!((all.stderr.as_slice(), all.exit.unwrap().rc, all.gaps), (&b"begun\n"[..], 7, 0));
}

#[tokio::test]
async fn a_terminal_follows_its_size_and_its_keys() {
    let agent = Agent::start();
    let script =
        "stty size; read go; stty size; trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let pty = Pty { rows: 40, cols: 100, term: "xterm".into() };
    let attached = client(&agent, PING).attach(&sh(script, Some(pty))).await.unwrap();
    let (mut input, mut output) = attached.split();
    let mut all = All::default();
    all.until(&mut output, "40 100").await;
    input.resize(50, 132).await.unwrap();
    input.write(b"go\n").await.unwrap();
    all.until(&mut output, "50 132").await;
    all.until(&mut output, "ready").await;
    input.write(&[3]).await.unwrap();
    all.until(&mut output, "interrupted").await;
    while all.take(&mut output).await.unwrap() {}
    assert_eq!(all.exit.unwrap().rc, 5);
}

#[tokio::test]
async fn a_detached_call_runs_on_and_can_be_attached_to_again() {
    let agent = Agent::start();
    let client = client(&agent, PING);
    let script = "echo one; read line; echo two $line; read line; echo three $line; exit 4";
    let attached = client.attach(&sh(script, None)).await.unwrap();
    let id = attached.process_id().to_owned();
    let (mut input, mut output) = attached.split();
    let mut all = All::default();
    all.until(&mut output, "one\n").await;
    input.detach().await.unwrap();
    while all.take(&mut output).await.unwrap() {}
    assert_eq!(all.detached, Some(4));
    assert!(all.exit.is_none());
    drop((input, output));
    assert_eq!(client.job(&id).info().await.unwrap().mode, ProcessMode::Detached);

    let (mut input, mut output) = client.attach_to(&id, all.detached).await.unwrap().split();
    input.write(b"x\n").await.unwrap();
    let mut again = All::default();
    again.until(&mut output, "two x\n").await;
    assert_eq!(again.stdout, b"two x\n", "nothing comes twice");
    drop((input, output)); // without a word: it is detached, and nothing happens to it
    client.job(&id).write_stdin(b"y\n").await.unwrap();
    assert_eq!(client.job(&id).wait().await.unwrap().rc, 4);

    // after its end as well
    let ended = self::all(client.attach_to(&id, None).await.unwrap()).await.unwrap();
    assert_eq!((ended.stdout.as_slice(), ended.exit.unwrap().rc), (&b"one\ntwo x\nthree y\n"[..], 4));
    assert_eq!(client.attach_to("p-none", None).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_told_as_such() {
    let agent = Agent::start();
    let argv = Some(vec!["/no/such/program".to_owned()]);
    let request = AttachRequest { exec: ExecRequest { argv, ..ExecRequest::default() }, pty: None };
    assert_eq!(client(&agent, PING).attach(&request).await.unwrap_err().kind(), ErrorKind::SpawnFailed);
    let nothing = AttachRequest::default();
    assert_eq!(client(&agent, PING).attach(&nothing).await.unwrap_err().kind(), ErrorKind::Rejected);
}

#[tokio::test]
async fn the_end_of_the_agent_has_its_kind_and_comes_at_once() {
    let agent = Agent::start();
    let attached = client(&agent, PING).attach(&sh("sleep 60", None)).await.unwrap();
    let begun = Instant::now();
    agent.kill();
    assert_eq!(all(attached).await.unwrap_err().kind(), ErrorKind::AgentLost);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());

    let agent = Agent::with(&["--drain", "0"]);
    let attached = client(&agent, PING).attach(&sh("sleep 60", None)).await.unwrap();
    agent.terminate();
    assert_eq!(all(attached).await.unwrap_err().kind(), ErrorKind::AgentStopping);
}

#[tokio::test]
async fn an_agent_that_stands_still_is_found_by_its_missing_pings() {
    let agent = Agent::start();
    let attached = client(&agent, Duration::from_millis(200)).attach(&sh("sleep 60", None)).await.unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let begun = Instant::now();
    let outcome = all(attached).await;
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::AgentLost);
    assert!((Duration::from_millis(500)..Duration::from_secs(4)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_reads_nothing_holds_up_its_input_and_nothing_else() {
    let agent = Agent::start();
    let attached =
        client(&agent, PING).attach(&sh("sleep 1; echo still; sleep 1; echo done; exit 3", None)).await.unwrap();
    let (mut input, mut output) = attached.split();
    let writing = tokio::spawn(async move {
        let bytes = vec![7; 64 * 1024 * 1024];
        input.write(&bytes).await
    });
    let mut all = All::default();
    all.until(&mut output, "still\n").await;
    assert!(!writing.is_finished(), "somebody has taken 64 MiB that nobody reads");
    while all.take(&mut output).await.unwrap() {}
    assert_eq!((all.stdout.as_slice(), all.exit.unwrap().rc), (&b"still\ndone\n"[..], 3));
    drop(output);
    // taken and dropped, or refused: what matters is that nobody waits for ever
    drop(tokio::time::timeout(Duration::from_secs(10), writing).await.expect("the writer is let go").unwrap());
    assert!(agent.peak_memory_kib() < 64 * 1024, "{} KiB", agent.peak_memory_kib());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_stays_a_client() {
    let agent = Agent::with(&["--ping-interval", "300"]);
    let client = client(&agent, Duration::from_millis(300));
    let attached = client.attach(&sh("head -c 50000000 /dev/zero; exit 3", None)).await.unwrap();
    let (_input, mut output) = attached.split();
    let mut all = All::default();
    all.take(&mut output).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await; // more pings than the agent forgives
    while all.take(&mut output).await.unwrap() {}
    assert_eq!((all.stdout.len(), all.exit.unwrap().rc, all.gaps), (50_000_000, 3, 0));
}
