//! The client's streams, jobs and lists with the real agent, over connections that are cut, and with an agent that dies.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use podlink::{
    host::{AgentClient, ClientSettings, Error, ErrorKind, ExecEvent, ExecStream, Job},
    protocol::{ExecRequest, ExecResult, Gap, ProcessMode, ProcessState},
    token::{Token, random_bytes},
};

use crate::support::{Agent, proxy::CuttingProxy};

fn client_at(agent: &Agent, address: SocketAddr, settings: ClientSettings) -> AgentClient {
    AgentClient::new(address, Token::parse(agent.token().as_bytes()).unwrap(), settings).unwrap()
}

fn client(agent: &Agent) -> AgentClient {
    client_at(agent, ([127, 0, 0, 1], agent.port()).into(), ClientSettings::DEFAULT)
}

fn sh(script: &str) -> ExecRequest {
    ExecRequest { argv: Some(["sh", "-c", script].map(String::from).to_vec()), ..ExecRequest::default() }
}

fn seq(last: usize) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// All that a stream hands out.
#[derive(Debug, Default)]
struct All {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    gaps: Vec<Gap>,
    exit: Option<ExecResult>,
}

async fn all(stream: &mut ExecStream) -> Result<All, Error> {
    let mut all = All::default();
    while let Some(event) = stream.next().await {
        match event? {
            ExecEvent::Started { process_id } => assert_eq!(process_id, stream.process_id()),
            ExecEvent::Stdout(bytes) => all.stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => all.stderr.extend_from_slice(&bytes),
            ExecEvent::Gap(gap) => all.gaps.push(gap),
            ExecEvent::Exit(result) => all.exit = Some(result),
        }
    }
    Ok(all)
}

/// A number that follows from the two and looks like none that does (splitmix64).
fn scattered(seed: u64, number: usize) -> u64 {
    let mut z = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Cuts the first so many connections at random places. The seed is told where a test fails.
fn cutting(agent: &Agent, cuts: usize) -> (CuttingProxy, u64) {
    let seed = u64::from_le_bytes(random_bytes().unwrap());
    let proxy = CuttingProxy::start(agent.port(), move |number| {
        // a proof takes half a kilobyte: some are cut in it, some in the head, most in the output
        (number < cuts).then(|| 300 + usize::try_from(scattered(seed, number) % 12_000).unwrap())
    });
    (proxy, seed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_call_cut_at_a_hundred_places_is_whole() {
    let agent = Agent::start();
    let (proxy, seed) = cutting(&agent, 100);
    let client = client_at(&agent, proxy.address(), ClientSettings::DEFAULT);
    let mut stream = client.exec_stream(&sh("seq 1 150000; echo end >&2; exit 3")).await;
    while let Err(error) = &stream {
        // a proof that is cut before anything was sent is no failure of the call
        assert_eq!(error.kind(), ErrorKind::Reset, "seed {seed}: {error}");
        stream = client.exec_stream(&sh("seq 1 150000; echo end >&2; exit 3")).await;
    }
    let all = all(&mut stream.unwrap()).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(all.stdout == seq(150_000), "seed {seed}: {} bytes, gaps {:?}", all.stdout.len(), all.gaps);
    assert_eq!(all.stderr, b"end\n", "seed {seed}");
    assert_eq!(all.exit.unwrap().rc, 3);
    assert!(proxy.cuts() >= 60, "{} cuts, seed {seed}", proxy.cuts());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_output_cut_at_a_hundred_places_is_whole() {
    let agent = Agent::start();
    let job = client(&agent).spawn(&sh("seq 1 200000; exit 3")).await.unwrap();
    let (proxy, seed) = cutting(&agent, 100);
    let job = client_at(&agent, proxy.address(), ClientSettings::DEFAULT).job(job.process_id());
    let mut output = job.output(Some(0), true).await;
    while let Err(error) = &output {
        assert_eq!(error.kind(), ErrorKind::Reset, "seed {seed}: {error}");
        output = job.output(Some(0), true).await;
    }
    let all = all(&mut output.unwrap()).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(all.stdout == seq(200_000), "seed {seed}: {} bytes, gaps {:?}", all.stdout.len(), all.gaps);
    assert_eq!(all.exit.unwrap().rc, 3);
    assert!(proxy.cuts() >= 60, "{} cuts, seed {seed}", proxy.cuts());
}

#[tokio::test]
async fn what_the_ring_has_lost_is_told_and_the_rest_is_exact() {
    let agent = Agent::start();
    let job = client(&agent).spawn(&sh("seq 1 1000000")).await.unwrap();
    assert_eq!(job.wait().await.unwrap().rc, 0);
    let whole = seq(1_000_000);
    let mut output = job.output(Some(0), true).await.unwrap();
    let told = all(&mut output).await.unwrap();
    let [Gap { from: 0, to }] = told.gaps[..] else { panic!("{:?}", told.gaps) };
    assert!(told.stdout == whole[usize::try_from(to).unwrap()..]);
    assert_eq!(output.offset(), whole.len() as u64);

    let mut kept = job.output(None, false).await.unwrap();
    let kept_all = all(&mut kept).await.unwrap();
    assert!(kept_all.gaps.is_empty() && kept_all.stdout == told.stdout);
    assert_eq!(kept.offset(), whole.len() as u64);
    assert_eq!(job.output(Some(whole.len() as u64 + 1), true).await.unwrap_err().kind(), ErrorKind::Rejected);
}

#[tokio::test]
async fn a_stream_whose_agent_is_killed_ends_within_seconds() {
    let agent = Agent::start();
    let client = client(&agent);
    let mut stream = client.exec_stream(&sh("echo begun; sleep 60")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Started { .. }))));
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Stdout(_)))));
    let begun = Instant::now();
    agent.kill();
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind(), ErrorKind::AgentLost);
    assert!(stream.next().await.is_none());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_agent_that_stands_still_is_found() {
    let agent = Agent::start();
    let settings = ClientSettings {
        stream_keep_alive: Duration::from_millis(200),
        proof_deadline: Duration::from_millis(300),
        orphan_life: Duration::from_secs(1),
        ..ClientSettings::DEFAULT
    };
    let client = client_at(&agent, ([127, 0, 0, 1], agent.port()).into(), settings);
    let mut stream = client.exec_stream(&sh("echo begun; sleep 60")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Started { .. }))));
    assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Stdout(_)))));
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let begun = Instant::now();
    let outcome = stream.next().await;
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(outcome.unwrap().unwrap_err().kind(), ErrorKind::AgentLost);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_streams_sixteen_at_a_time_are_all_whole() {
    let agent = Agent::start();
    let (client, whole) = (client(&agent), seq(500));
    let mut outcomes = stream::iter(0..500)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { all(&mut client.exec_stream(&sh("seq 1 500")).await?).await })
        })
        .buffer_unordered(16);
    while let Some(outcome) = outcomes.next().await {
        let all = outcome.unwrap().unwrap();
        assert_eq!(all.stdout, whole);
        assert_eq!(all.exit.unwrap().stdout_bytes, whole.len() as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_streams_run_at_one_time() {
    let agent = Agent::with(&["--exec-slots", "64"]);
    let client = client(&agent);
    // each writes once all run: none waits for another's end
    let mut streams = Vec::new();
    for number in 0..64 {
        let call = sh(&format!("read go; seq 1 2000; echo {number} >&2"));
        streams.push(client.exec_stream(&ExecRequest { open_stdin: true, ..call }).await.unwrap());
    }
    for stream in &streams {
        client.job(stream.process_id()).write_stdin(b"go\n").await.unwrap();
    }
    let readers = streams.into_iter().map(|mut stream| tokio::spawn(async move { all(&mut stream).await }));
    for (number, reader) in readers.collect::<Vec<_>>().into_iter().enumerate() {
        let all = reader.await.unwrap().unwrap();
        assert_eq!((all.stdout, all.stderr), (seq(2000), format!("{number}\n").into_bytes()));
    }
}

#[tokio::test]
async fn a_reader_that_stands_still_slows_the_program_and_loses_nothing() {
    let agent = Agent::start();
    let settings = ClientSettings { stream_keep_alive: Duration::from_millis(300), ..ClientSettings::DEFAULT };
    let client = client_at(&agent, ([127, 0, 0, 1], agent.port()).into(), settings);
    let total: u64 = 300 * 1024 * 1024;
    let mut stream = client.exec_stream(&sh(&format!("head -c {total} /dev/zero; echo done >&2"))).await.unwrap();
    let mut paused = false;
    while stream.offset() < total {
        assert!(!matches!(stream.next().await.unwrap().unwrap(), ExecEvent::Gap(_) | ExecEvent::Exit(_)));
        if stream.offset() > total / 2 && !paused {
            paused = true;
            tokio::time::sleep(Duration::from_secs(2)).await; // more than three signs of life
            let info = client.job(stream.process_id()).info().await.unwrap();
            // what lies in the sockets' buffers, which the system sizes, and in the ring
            assert!(info.output_bytes < stream.offset() + 64 * 1024 * 1024, "{} read ahead", info.output_bytes);
            assert_eq!(info.state, ProcessState::Running);
        }
    }
    let rest = all(&mut stream).await.unwrap();
    assert_eq!((rest.stderr.as_slice(), rest.exit.unwrap().stdout_bytes), (&b"done\n"[..], total));
    assert!(agent.peak_memory_kib() < 64 * 1024, "{} KiB", agent.peak_memory_kib());
}

/// Waits until a job has written so much.
async fn written(job: &Job, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while job.info().await.unwrap().output_bytes < bytes {
        assert!(Instant::now() < deadline, "it never wrote {bytes} bytes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_jobs_life() {
    let agent = Agent::start();
    let client = client(&agent);
    let call = sh("trap 'echo hup' HUP; echo begun; while read line; do echo got $line; done; exit 5");
    let job = client.spawn(&ExecRequest { open_stdin: true, ..call }).await.unwrap();
    let info = job.info().await.unwrap();
    assert_eq!((info.state, info.mode), (ProcessState::Running, ProcessMode::Detached));
    assert!(client.processes().await.unwrap().iter().any(|one| one.process_id == job.process_id()));
    written(&job, 6).await;
    assert_eq!(job.write_stdin(b"a\nb\n").await.unwrap(), 4);
    written(&job, 18).await;
    assert_eq!(job.signal("HUP", false).await.unwrap(), 1);
    let waiting = tokio::spawn({
        let job = job.clone();
        async move { job.wait().await }
    });
    job.close_stdin().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().rc, 5);
    assert_eq!(job.wait().await.unwrap().rc, 5, "after the end as well");
    let mut output = job.output(None, true).await.unwrap();
    assert_eq!(all(&mut output).await.unwrap().stdout, b"begun\ngot a\ngot b\nhup\n");
    assert_eq!(job.write_stdin(b"x").await.unwrap_err().kind(), ErrorKind::Rejected);

    let job = client.spawn(&sh("trap '' TERM; sleep 600 & echo up; sleep 600")).await.unwrap();
    written(&job, 3).await;
    let ended = job.kill_and_keep(Some(Duration::from_millis(50))).await.unwrap();
    assert!(ended.killed >= 2 && ended.survivors.is_empty(), "{ended:?}");
    assert_eq!(job.wait().await.unwrap_err().kind(), ErrorKind::Cancelled);
    job.kill(None).await.unwrap();
    assert_eq!(job.info().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(job.wait().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(client.job("p-none").kill(None).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_calls_are_listed_and_ended() {
    let agent = Agent::start();
    let client = client(&agent);
    let call = ExecRequest { session: Some("one".into()), ..sh("echo begun; sleep 60") };
    let mut first = client.exec_stream(&call).await.unwrap();
    let second = tokio::spawn({
        let (client, call) = (client.clone(), call.clone());
        async move { client.exec_stream(&call).await }
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let session = loop {
        let sessions = client.sessions().await.unwrap();
        if let Some(session) = sessions.into_iter().find(|session| session.queued.len() == 1) {
            break session;
        }
        assert!(Instant::now() < deadline, "the second call never waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(session.name, "one");
    assert_eq!(session.running.unwrap().process_id, first.process_id());
    let busy = ExecRequest { queue: false, ..call };
    assert_eq!(client.exec_stream(&busy).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(client.end_session("one").await.unwrap(), 2);
    assert_eq!(all(&mut first).await.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(second.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(client.end_session("one").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_guests_processes_and_sockets_are_listed() {
    let agent = Agent::start();
    let client = client(&agent);
    let processes = client.system_processes().await.unwrap().processes;
    assert!(processes.iter().any(|process| process.pid == agent.pid()));
    let sockets = client.system_sockets().await.unwrap().sockets;
    assert!(sockets.iter().any(|socket| socket.port == agent.port()));
}
