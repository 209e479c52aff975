//! The checks of the agent's port on this host: who holds it, and what happens on new connections to it.
//!
//! Implementation note: reqwest's errors do not tell a reset from a close, so a try speaks hyper on a socket of its
//! own. It bears a challenge and never the token.

use std::{io, net::SocketAddr, time::Instant};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;

use super::{
    DoctorSettings, EngineEvidence, Evidence, PortOwner, Try,
    check::{Advice, Check},
    words,
};
use crate::{
    host::{
        AgentKind, EngineKind, Pod, Result, Seen,
        client::{Expected, judge, stage_sentence},
        engine::{ContainerState, local_agent},
        ports::{self, Owner},
    },
    protocol::{HEADER_CHALLENGE, HEADER_PROOF, PATH_HEALTH},
    token::{Challenge, Token},
};

/// More than an answer of `/health` ever takes.
const MAX_BODY: usize = 64 << 10;

/// Who listens on the pod's port.
pub(super) fn owner(pod: &Pod) -> PortOwner {
    let Some(owner) = ports::listener(pod.settings().ports.agent) else { return PortOwner::Nobody };
    match (&owner, pod.settings().engine) {
        (Owner::Process { pid, .. }, EngineKind::Local) => {
            if local_agent(pod) == Some(*pid) {
                PortOwner::Ours(owner)
            } else {
                PortOwner::Other(owner)
            }
        }
        (_, EngineKind::Local) => PortOwner::Other(owner),
        (Owner::Process { name, .. }, _) if is_engines(name) => PortOwner::Ours(owner),
        (Owner::Process { .. }, _) => PortOwner::Other(owner),
        (Owner::User { .. } | Owner::Unknown, _) => PortOwner::Unknown(owner),
    }
}

/// Whether a program of this name holds ports for podman or docker.
fn is_engines(name: &str) -> bool {
    const ENGINES: [&str; 14] = [
        "conmon",
        "rootlessport",
        "exe",
        "slirp4netns",
        "pasta",
        "pasta.avx2",
        "passt",
        "podman",
        "netavark",
        "gvproxy",
        "docker-proxy",
        "dockerd",
        "rootlesskit",
        "com.docker",
    ];
    ENGINES.iter().any(|engine| name == *engine || (engine.len() > 6 && name.starts_with(engine)))
}

/// Tries the port until a ready agent answers or the window has passed; besides, how far the agent's clock is ahead.
///
/// # Errors
/// When the system has no randomness for a challenge.
pub(super) async fn tries(
    pod: &Pod,
    token: Option<&Token>,
    settings: &DoctorSettings,
) -> Result<(Vec<Try>, Option<f64>)> {
    let end = Instant::now() + settings.window;
    let (mut tries, mut clock) = (Vec::new(), None);
    loop {
        let challenge = Challenge::generate()?;
        let expected = match (pod.settings().agent, token) {
            (AgentKind::Podlink, Some(token)) => Expected::Proof(token.prove(&challenge)),
            _ => Expected::Nothing,
        };
        let (met, ahead) = once(pod.address(), &challenge, &expected, settings).await;
        if matches!(met, Try::Answered(Seen::Ready(_) | Seen::NotReady(_))) {
            clock = ahead;
        }
        let ready = met.is_ready();
        tries.push(met);
        if ready || Instant::now() + settings.pause > end {
            return Ok((tries, clock));
        }
        tokio::time::sleep(settings.pause).await;
    }
}

/// One new connection; and by how much the peer's clock is ahead, where it answered and said.
async fn once(
    address: SocketAddr,
    challenge: &Challenge,
    expected: &Expected,
    settings: &DoctorSettings,
) -> (Try, Option<f64>) {
    let connecting = tokio::net::TcpStream::connect(address);
    let stream = match tokio::time::timeout(settings.per_try, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let tried = match error.kind() {
                io::ErrorKind::ConnectionRefused => Try::Refused,
                io::ErrorKind::TimedOut => Try::ConnectTimedOut,
                io::ErrorKind::ConnectionReset => Try::Reset,
                _ => Try::Unreachable(error.to_string()),
            };
            return (tried, None);
        }
        Err(_) => return (Try::ConnectTimedOut, None),
    };
    match tokio::time::timeout(settings.per_try, exchange(stream, address, challenge, expected)).await {
        Err(_) => (Try::Silent, None),
        Ok(Ok((seen, ahead))) => (Try::Answered(seen), ahead),
        Ok(Err(error)) => (try_of(&*error), None),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    stream: tokio::net::TcpStream,
    address: SocketAddr,
    challenge: &Challenge,
    expected: &Expected,
) -> Result<(Seen, Option<f64>), BoxError> {
    let request = Request::get(PATH_HEALTH)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .header(HEADER_CHALLENGE, challenge.to_hex())
        .body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let sent = jiff::Timestamp::now();
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let received = jiff::Timestamp::now();
        let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
        Ok::<_, BoxError>((head, received, body))
    };
    // of an error of the connection the answer is told
    let (answer, _) = tokio::join!(answer, connection);
    let (head, received, body) = answer?;
    let proof = head.headers.get(HEADER_PROOF).map(header::HeaderValue::as_bytes);
    let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or_default();
    let ahead = head.headers.get(header::DATE).and_then(|date| ahead(date.as_bytes(), sent, received));
    Ok((judge(status, proof, &body, expected).0, ahead))
}

/// By how many seconds a clock that says `date` is surely ahead, seen between `sent` and `received`.
///
/// The header has whole seconds, and a server may keep its text for one more.
fn ahead(date: &[u8], sent: jiff::Timestamp, received: jiff::Timestamp) -> Option<f64> {
    const COARSE: f64 = 2.0;
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    let seconds = |from: jiff::Timestamp, to: jiff::Timestamp| to.duration_since(from).as_secs_f64();
    let (at_least, at_most) = (seconds(received, date), seconds(sent, date) + COARSE);
    Some(if at_least > 0.0 { at_least } else { at_most.min(0.0) })
}

/// What a failed exchange on a connection that was made has met.
fn try_of(error: &(dyn std::error::Error + 'static)) -> Try {
    let mut next = Some(error);
    let mut tried = Try::Closed;
    while let Some(error) = next {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            tried = Try::Answered(Seen::Foreign { status: None, what: "something that is not HTTP".to_owned() });
        } else if error.is::<http_body_util::LengthLimitError>() {
            tried = Try::Answered(Seen::Foreign { status: None, what: "a body that is far too long".to_owned() });
        } else if let Some(error) = error.downcast_ref::<io::Error>()
            && matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        {
            tried = Try::Reset;
        }
        next = error.source();
    }
    tried
}

/// The lines `owner` and `port`.
pub(super) fn checks(evidence: &Evidence, cause: Option<Advice>) -> Vec<Check> {
    vec![owner_check(evidence), port_check(evidence, cause)]
}

/// What to do about another program on the port.
pub(super) fn taken(evidence: &Evidence, owner: &Owner) -> Advice {
    let port = evidence.pod.port;
    Advice::new(
        format!("the agent's port {port} is taken by {owner}"),
        format!("end that program, or give the pod another port with {}", words::setup(evidence, " --agent-port PORT")),
    )
}

/// Another program that stands where the pod's forward should: not one that the pod answers through.
pub(super) fn usurper(evidence: &Evidence) -> Option<&Owner> {
    let answers = match evidence.outcome() {
        Some(Try::Answered(Seen::Ready(_))) => true,
        // without a token nothing is proved
        Some(Try::Answered(Seen::NotReady(health))) => health.stage.implies_token(),
        _ => false,
    };
    match &evidence.owner {
        PortOwner::Other(owner) if !answers => Some(owner),
        // some other user's program, while the engine has nothing there
        PortOwner::Unknown(owner)
            if !answers
                && evidence
                    .state()
                    .is_some_and(|state| state != ContainerState::Running && state != ContainerState::Paused) =>
        {
            Some(owner)
        }
        _ => None,
    }
}

fn owner_check(evidence: &Evidence) -> Check {
    let port = evidence.pod.port;
    match &evidence.owner {
        PortOwner::Ours(owner) => Check::ok("owner", format!("{owner} listens on 127.0.0.1:{port}")),
        PortOwner::Nobody if evidence.outcome() == Some(&Try::Refused) => {
            let advice = Advice::new(format!("nothing listens on 127.0.0.1:{port}"), words::command(evidence, "up"));
            Check::failed("owner", "nobody listens", advice)
        }
        PortOwner::Nobody => Check::ok("owner", "nobody listens; the kernel forwards the port"),
        PortOwner::Other(owner) | PortOwner::Unknown(owner) => match usurper(evidence) {
            Some(owner) => {
                Check::failed("owner", format!("{owner} listens on 127.0.0.1:{port}"), taken(evidence, owner))
            }
            None if matches!(evidence.owner, PortOwner::Unknown(_)) => {
                Check::ok("owner", format!("{owner} listens on 127.0.0.1:{port}"))
            }
            None => {
                let what = format!("{owner} stands between this host and the agent on port {port}");
                Check::warning(
                    "owner",
                    format!("{owner} listens on 127.0.0.1:{port}"),
                    Advice::new(what, "end it if it is not yours"),
                )
            }
        },
    }
}

/// What the tries met, in a few words: `refused, refused, silence`.
fn tries_in_words(tries: &[Try]) -> String {
    let mut words: Vec<(String, usize)> = Vec::new();
    for tried in tries {
        let word = match tried {
            Try::Refused => "refused".to_owned(),
            Try::ConnectTimedOut => "no connection in time".to_owned(),
            Try::Unreachable(why) => why.clone(),
            Try::Reset => "connected, then reset".to_owned(),
            Try::Closed => "connected, then closed without an answer".to_owned(),
            Try::Silent => "connected, then silence".to_owned(),
            Try::Answered(seen) => answer_in_words(seen),
        };
        match words.last_mut() {
            Some((last, count)) if *last == word => *count += 1,
            _ => words.push((word, 1)),
        }
    }
    let counted =
        words.into_iter().map(|(word, count)| if count > 1 { format!("{word} ({count} times)") } else { word });
    counted.collect::<Vec<_>>().join("; then ")
}

fn answer_in_words(seen: &Seen) -> String {
    match seen {
        Seen::Ready(_) => "200, ready".to_owned(),
        Seen::NotReady(health) => format!("503, {}", stage_sentence(health.stage, &health.waiting_for)),
        Seen::TokenMismatch(_) => "an agent that does not hold this pod's token".to_owned(),
        Seen::Foreign { status: Some(status), what } => format!("{status}, {what}"),
        Seen::Foreign { status: None, what } => what.clone(),
        Seen::Refused | Seen::Reset | Seen::Silent => seen.as_str().to_owned(),
    }
}

fn port_check(evidence: &Evidence, cause: Option<Advice>) -> Check {
    let seen = tries_in_words(&evidence.tries);
    // whose token it holds is another check's business
    if let Some(Try::Answered(Seen::Ready(_) | Seen::TokenMismatch(_))) = evidence.outcome() {
        return Check::ok("port", seen);
    }
    let silent = || Advice::new("the agent does not answer", words::command(evidence, "wait-ready"));
    Check::failed("port", seen, cause.unwrap_or_else(silent))
}

impl Evidence {
    /// Whether the engine is podman or docker and its container runs, or that cannot be told.
    pub(super) fn may_run(&self) -> bool {
        match &self.engine {
            EngineEvidence::Local(_) => false,
            EngineEvidence::Container { .. } => self.state().is_none_or(|state| state == ContainerState::Running),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_helpers_are_known() {
        for name in ["docker-proxy", "rootlessport", "conmon", "pasta.avx2", "com.docker.backe"] {
            assert!(is_engines(name), "{name}");
        }
        for name in ["python3", "nc", "podlink", "exec"] {
            assert!(!is_engines(name), "{name}");
        }
    }

    #[test]
    fn clocks_differ_only_beyond_what_the_header_can_tell() {
        let at = |text: &str| -> jiff::Timestamp { text.parse().unwrap() };
        let (sent, received) = (at("2026-11-29T14:00:10.2Z"), at("2026-11-29T14:00:10.9Z"));
        let said = |second: u8| {
            let date = format!("Sun, 29 Nov 2026 14:00:{second:02} GMT");
            ahead(date.as_bytes(), sent, received).unwrap()
        };
        for same in [9, 10] {
            assert!(said(same).abs() < 1e-9, "{same}: {}", said(same));
        }
        assert!((said(20) - 9.1).abs() < 1e-6, "{}", said(20));
        assert!((said(1) + 7.2).abs() < 1e-6, "{}", said(1));
        assert_eq!(ahead(b"yesterday", sent, received), None);
    }
}
