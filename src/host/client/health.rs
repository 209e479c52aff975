//! What answers on the agent's port, told apart by one `GET /health`.

use std::error::Error as StdError;

use reqwest::StatusCode;
use thiserror::Error as DeriveError;

use super::super::{AgentKind, Error, ErrorKind};
use crate::{
    protocol::{ErrorBody, Health, Stage},
    token::{Proof, TokenError},
};

/// What one try to reach the agent met.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// The agent, ready; it holds our token.
    Ready(Health),
    /// The agent, not ready yet; it holds our token or waits for one.
    NotReady(Health),
    /// An agent whose proof is not made with our token.
    TokenMismatch(Health),
    /// Nothing listens.
    Refused,
    /// The connection was closed or reset without a whole answer; a forwarder with nothing behind it does so.
    Reset,
    /// No answer within the deadline.
    Silent,
    /// An answer that is not the agent's.
    Foreign {
        /// The HTTP status, where it was HTTP.
        status: Option<u16>,
        /// What came, in a few words of our own.
        what: String,
    },
}

impl Seen {
    /// The agent's health, where an agent answered.
    pub const fn health(&self) -> Option<&Health> {
        match self {
            Self::Ready(health) | Self::NotReady(health) | Self::TokenMismatch(health) => Some(health),
            _ => None,
        }
    }

    /// A short name for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::NotReady(_) => "not_ready",
            Self::TokenMismatch(_) => "token_mismatch",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Silent => "silent",
            Self::Foreign { .. } => "foreign",
        }
    }

    fn foreign(status: StatusCode, what: impl Into<String>) -> Self {
        Self::Foreign { status: Some(status.as_u16()), what: what.into() }
    }
}

/// What the answer to a challenge must be.
#[derive(Debug)]
pub(crate) enum Expected {
    /// This signature.
    Proof(Proof),
    /// None: the pod's agent has no proofs.
    Nothing,
}

/// Judges an answer of `/health`; the flag says whether it proves that the peer holds the token.
pub(crate) fn judge(status: StatusCode, proof: Option<&[u8]>, body: &[u8], expected: &Expected) -> (Seen, bool) {
    let Ok(health) = serde_json::from_slice::<Health>(body) else {
        return (Seen::foreign(status, describe(status, body)), false);
    };
    if health.ok != (status == StatusCode::OK) || !matches!(status.as_u16(), 200 | 503) {
        return (Seen::foreign(status, "JSON that contradicts its own status"), false);
    }
    let ours = health.protocol > 0 && !health.agent_id.is_empty();
    match expected {
        Expected::Nothing if ours || !health.version.is_empty() => (readiness(health), false),
        _ if !ours => {
            let what = if health.version.is_empty() {
                "JSON that is not an agent's"
            } else {
                "the health of an agent of another kind (for winpodx' the pod's setting is `agent: winpodx`)"
            };
            (Seen::foreign(status, what), false)
        }
        Expected::Proof(right) => match proof {
            Some(proof) if Proof::parse(proof).is_some_and(|proof| proof == *right) => (readiness(health), true),
            Some(_) => (Seen::TokenMismatch(health), false),
            // it holds none yet, so it cannot prove one
            None if !health.stage.implies_token() && !health.ok => (Seen::NotReady(health), false),
            None => (Seen::foreign(status, "an agent's health without the proof that it holds the pod's token"), false),
        },
        Expected::Nothing => (readiness(health), false),
    }
}

fn readiness(health: Health) -> Seen {
    if health.ok { Seen::Ready(health) } else { Seen::NotReady(health) }
}

/// What a body is, without showing any of it.
fn describe(status: StatusCode, body: &[u8]) -> String {
    if let Ok(error) = serde_json::from_slice::<ErrorBody>(body)
        && error.error.status() == status.as_u16()
    {
        return format!("an agent that refuses to answer this host ({})", error.error.as_str());
    }
    let text = body.trim_ascii_start();
    let kind = if text.is_empty() {
        "nothing in the body"
    } else if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        "JSON that is not an agent's"
    } else if text.starts_with(b"<") {
        "a web page"
    } else {
        "something that is not JSON"
    };
    kind.to_owned()
}

/// What a failed exchange met.
pub(super) fn seen_of(error: &(dyn StdError + 'static)) -> Seen {
    let mut seen = Seen::Reset;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<ProofError>() {
            return error.seen.clone();
        }
        if error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout) {
            seen = Seen::Silent;
        } else if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            seen = Seen::Foreign { status: None, what: "something that is not HTTP".to_owned() };
        } else if error.is::<http_body_util::LengthLimitError>() {
            seen = Seen::Foreign { status: None, what: "a body that is far too long".to_owned() };
        } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
            match error.kind() {
                std::io::ErrorKind::ConnectionRefused => return Seen::Refused,
                std::io::ErrorKind::TimedOut => seen = Seen::Silent,
                _ => {}
            }
        }
        next = error.source();
    }
    seen
}

/// Any error, as libraries hand them on.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a connection was not handed out: nothing but the challenge has been sent over it.
#[derive(Debug, DeriveError)]
#[error("the peer has not proved that it holds the pod's token")]
pub(super) struct ProofError {
    seen: Seen,
    source: Option<BoxError>,
}

impl ProofError {
    pub(super) fn met(seen: Seen) -> Self {
        Self { seen, source: None }
    }

    pub(super) fn broken(source: BoxError) -> Self {
        Self { seen: seen_of(&*source), source: Some(source) }
    }
}

impl From<TokenError> for ProofError {
    fn from(error: TokenError) -> Self {
        Self { seen: Seen::Reset, source: Some(error.into()) }
    }
}

/// Where an error happened and how it is put right, for its text.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: std::net::SocketAddr,
    pub(super) kind: AgentKind,
    /// `--pod NAME`, to be put behind commands; empty where the client was made without a pod.
    pub(super) pod_flag: String,
    /// How the agent gets the pod's token.
    pub(super) token_fix: String,
}

impl Place {
    /// The error of a call that met this.
    pub(super) fn error(&self, seen: &Seen) -> Error {
        let (address, pod) = (self.address, &self.pod_flag);
        match seen {
            Seen::Refused => Error::new(ErrorKind::Refused, format!("nothing listens on {address}"))
                .with_hint(format!("start the pod with `podlink pod up{pod}`; `podlink pod status{pod}` shows how it is")),
            Seen::Reset => Error::new(
                ErrorKind::Reset,
                format!("the connection to {address} was closed without an answer: the port is forwarded and no agent answers behind it"),
            )
            .with_hint(format!("the guest may still boot: `podlink pod wait-ready{pod}`")),
            Seen::Silent => Error::new(
                ErrorKind::Silent,
                format!("{address} takes connections and nothing answers in time"),
            )
            .with_hint(format!(
                "the guest may still boot, be paused, or its firewall may drop the port: `podlink pod wait-ready{pod}`"
            )),
            Seen::Foreign { what, .. } => Error::new(
                ErrorKind::ForeignProgram,
                format!("another program answers on {address}: {what}; the token was not sent"),
            )
            .with_hint(format!("free port {}, or give the pod another with `podlink setup{pod} --agent-port PORT`", address.port())),
            Seen::TokenMismatch(_) => self.token_mismatch(),
            Seen::NotReady(health) | Seen::Ready(health) => self.not_ready(health.stage, &health.waiting_for),
        }
    }

    /// The agent has another token.
    pub(super) fn token_mismatch(&self) -> Error {
        let detail = match self.kind {
            AgentKind::Podlink => "does not hold this pod's token",
            AgentKind::Winpodx => "refuses this pod's token",
        };
        Error::new(ErrorKind::TokenMismatch, format!("token mismatch: the agent on {} {detail}", self.address))
            .with_hint(self.token_fix.clone())
    }

    /// The agent is there and the guest is not ready.
    pub(super) fn not_ready(&self, stage: Stage, waiting_for: &[String]) -> Error {
        let pod = &self.pod_flag;
        match stage {
            Stage::InstallFailed => {
                Error::new(ErrorKind::InstallFailed, format!("the guest's {}", stage_sentence(stage, waiting_for).trim_start_matches("the ")))
                    .with_hint(
                        "its log lies in the guest (C:\\OEM\\podlink-install.log on Windows): mend what it names, then run the installer there again (`C:\\OEM\\install.bat`, or `podlink agent install`), which goes on where it ended",
                    )
            }
            Stage::Draining => Error::new(ErrorKind::AgentStopping, "the agent is going down and takes no calls")
                .with_hint(format!("wait for it with `podlink pod wait-ready{pod}`")),
            _ => Error::new(ErrorKind::NotReady, format!("still booting: {}", stage_sentence(stage, waiting_for)))
                .with_hint(format!("wait with `podlink pod wait-ready{pod}`, or give the call `--wait SECS`")),
        }
    }
}

/// What a stage means, for a person.
pub(crate) fn stage_sentence(stage: Stage, waiting_for: &[String]) -> String {
    let what = match stage {
        Stage::WaitingForToken => "the agent waits for its token",
        Stage::Installing => "installing",
        Stage::InstallFailed => "the installation failed",
        Stage::Ready => "ready",
        Stage::Draining => "the agent is going down",
        _ => "the agent is not ready",
    };
    match stage {
        _ if waiting_for.is_empty() => what.to_owned(),
        // each gate with its reason
        Stage::InstallFailed => format!("{what}: {}", waiting_for.join(", ")),
        _ => format!("{what}, waits for {}", waiting_for.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{Challenge, Token};

    const HEALTH: &str = r#"{"ok":true,"version":"0.1.0","protocol":1,"agent_id":"a","stage":"ready"}"#;

    fn proof() -> Proof {
        Token::generate().unwrap().prove(&Challenge::generate().unwrap())
    }

    #[test]
    fn only_the_right_proof_is_ready() {
        let right = proof();
        let hex = right.to_hex();
        let expected = Expected::Proof(right);
        let judged =
            |proof: Option<&str>| judge(StatusCode::OK, proof.map(str::as_bytes), HEALTH.as_bytes(), &expected);
        assert!(matches!(judged(Some(&hex)), (Seen::Ready(_), true)));
        assert!(matches!(judged(Some(&proof().to_hex())), (Seen::TokenMismatch(_), false)));
        assert!(matches!(judged(Some("zz")), (Seen::TokenMismatch(_), false)));
        assert!(matches!(judged(None), (Seen::Foreign { .. }, false)));
    }

    #[test]
    fn what_is_not_an_agents_is_foreign_and_not_shown() {
        let expected = Expected::Proof(proof());
        for (status, body) in [
            (200, "hunter2"),
            (200, r#"{"ok":true}"#),
            (200, r#"{"ok":true,"version":"hunter2"}"#),
            (200, r#"{"hunter2":1}"#),
            (404, "<html>hunter2"),
            (502, "<html>hunter2"),
            (200, ""),
            (500, HEALTH),
            (503, HEALTH),
        ] {
            let (seen, proved) = judge(StatusCode::from_u16(status).unwrap(), None, body.as_bytes(), &expected);
            assert!(!proved);
            assert!(matches!(&seen, Seen::Foreign { status: Some(s), .. } if *s == status), "{body}: {seen:?}");
            assert!(!format!("{seen:?}").contains("hunter2"));
        }
    }

    #[test]
    fn an_agent_without_a_token_yet_is_waited_for() {
        let body = r#"{"ok":false,"version":"0.1.0","protocol":1,"agent_id":"a","stage":"waiting_for_token"}"#;
        let (seen, proved) = judge(StatusCode::SERVICE_UNAVAILABLE, None, body.as_bytes(), &Expected::Proof(proof()));
        assert!(matches!(seen, Seen::NotReady(_)) && !proved);
    }

    #[test]
    fn winpodx_is_taken_only_where_it_is_asked_for() {
        let body = br#"{"started_at":"2026-11-29T17:03:10.0817217Z","version":"0.2.3","ok":true}"#;
        assert!(matches!(judge(StatusCode::OK, None, body, &Expected::Nothing), (Seen::Ready(_), false)));
        assert!(matches!(
            judge(StatusCode::OK, None, br#"{"ok":true}"#, &Expected::Nothing),
            (Seen::Foreign { .. }, _)
        ));
        assert!(matches!(judge(StatusCode::OK, None, body, &Expected::Proof(proof())), (Seen::Foreign { .. }, _)));
    }
}
