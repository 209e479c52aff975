//! The client of the agent: proves its peer, bears the token, keeps deadlines, repeats only what is safe.

mod answer;
mod attach;
mod attached;
mod events;
mod exec;
mod failed_try;
mod frames;
mod health;
mod http;
mod job;
mod lists;
mod logs;
mod once;
mod patience;
mod proof;
mod reattach;
mod restart;
mod retry;
mod stream;
mod system;
mod winpodx;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Client, Method, RequestBuilder, header};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

pub use attached::{AttachEvent, Attached, AttachedInput, AttachedOutput};
pub use events::{AgentEvent, EventItem, EventStream, EventsPatience, EventsRequest};
pub use exec::{ExecOutcome, RequestId};
pub use health::Seen;
pub(crate) use health::{Expected, judge, stage_sentence};
pub use job::Job;
pub use logs::{GuestLogRequest, GuestLogStream};
pub use stream::{ExecEvent, ExecStream};

use self::{
    answer::Answer,
    failed_try::TryError,
    frames::garbled,
    health::{Place, seen_of},
    http::{BodyError, read_body},
    once::{Form, Reply},
    proof::{Agents, Guard, MAX_HEALTH, ProofLayer},
};
use super::{AgentKind, EngineKind, Error, ErrorKind, GuestOs, Pod, Result};
use crate::{
    protocol::{
        HEADER_CHALLENGE, HEADER_PROOF, HEADER_PROTOCOL, PATH_EXEC, PATH_HEALTH, PATH_WHOAMI, PROTOCOL_VERSION, Whoami,
    },
    token::{Challenge, Token},
};

/// The client's deadlines and bounds.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// For a connection to be made.
    pub connect_deadline: Duration,
    /// For the peer on a new connection to prove itself. A forwarder may take a connection seconds before the guest
    /// listens and never answer on it.
    pub proof_deadline: Duration,
    /// For one [`AgentClient::health`], the connection included.
    pub health_deadline: Duration,
    /// For a call that does nothing in the guest.
    pub call_deadline: Duration,
    /// For a cancel: somebody has pressed Ctrl-C and waits.
    pub cancel_deadline: Duration,
    /// The most that the agent lets a call wait for a slot; not part of the call's own time-out.
    pub queue_wait: Duration,
    /// The most that it lets a call wait for its turn in a session; likewise.
    pub session_wait: Duration,
    /// What the agent may need to kill a whole tree and answer, so that its own time-out is the one seen.
    pub kill_margin: Duration,
    /// How long the agent keeps a call whose caller is gone.
    pub orphan_life: Duration,
    /// How long a job that needs no caller is looked for after a connection to it broke.
    pub job_life: Duration,
    /// Likewise one that somebody is attached to, who can do nothing meanwhile.
    pub attached_job_life: Duration,
    /// How often the agent gives a sign of life on a stream that has nothing else to say; a peer that is heard nothing
    /// of for three of them is dead.
    pub stream_keep_alive: Duration,
    /// Likewise on an attached call; as often, this side gives one.
    pub attach_ping: Duration,
    /// For a program to take a piece of what is written to its stdin: it need not be in a hurry.
    pub stdin_wait: Duration,
    /// The pause between two tries where nothing listens: refused twice, the agent is gone.
    pub refused_pause: Duration,
    /// The most bytes of an answer. Two streams of 8 MiB, each as text and in base64, escaped, stay below it.
    pub max_answer: usize,
}

impl ClientSettings {
    /// What the command line uses.
    pub const DEFAULT: Self = Self {
        connect_deadline: Duration::from_secs(3),
        proof_deadline: Duration::from_secs(5),
        health_deadline: Duration::from_secs(1),
        call_deadline: Duration::from_secs(10),
        cancel_deadline: Duration::from_secs(3),
        queue_wait: Duration::from_secs(30),
        session_wait: Duration::from_hours(1),
        kill_margin: Duration::from_secs(15),
        orphan_life: Duration::from_secs(5),
        job_life: Duration::from_mins(1),
        attached_job_life: Duration::from_secs(15),
        stream_keep_alive: Duration::from_secs(15),
        attach_ping: Duration::from_secs(30),
        stdin_wait: Duration::from_hours(1),
        refused_pause: Duration::from_millis(150),
        max_answer: 128 * 1024 * 1024,
    };
}

/// A client of one agent.
///
/// Its token is sent only over connections whose peer has proved that it holds the same; a pod with the setting
/// `agent: winpodx` is the one exception. Proxies of the environment are never used. Clones share their connections.
///
/// # Example
/// ```no_run
/// use podlink::{
///     host::{AgentClient, ClientSettings, Home, Pod},
///     protocol::ExecRequest,
/// };
///
/// # async fn example() -> podlink::host::Result<()> {
/// let pod = Pod::load(&Home::from_env()?, &"windows".parse().expect("a good name"))?;
/// let client = AgentClient::for_pod(&pod, ClientSettings::DEFAULT)?;
/// let outcome = client.exec(&ExecRequest::argv(["whoami"])).await?;
/// println!("{} said {:?}", outcome.result.rc, String::from_utf8_lossy(&outcome.stdout));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AgentClient {
    calls: Client,
    probes: Client,
    token: Token,
    agents: Arc<Agents>,
    place: Place,
    settings: ClientSettings,
}

impl AgentClient {
    /// A client of podlink's own agent at `address`.
    ///
    /// # Errors
    /// When the HTTP client cannot be built.
    pub fn new(address: SocketAddr, token: Token, settings: ClientSettings) -> Result<Self> {
        let token_fix = "give the agent's token file the same content as this side's; it is read again within 2 s";
        let place = Place { address, kind: AgentKind::Podlink, pod_flag: String::new(), token_fix: token_fix.into() };
        Self::at(place, token, settings)
    }

    /// A client of a pod's agent.
    ///
    /// # Errors
    /// When the pod's token cannot be read, or the HTTP client cannot be built.
    pub fn for_pod(pod: &Pod, settings: ClientSettings) -> Result<Self> {
        let pod_flag = pod.name().flag();
        let staged = pod.dir().join("oem").join(crate::token::STAGED_NAME);
        let token_fix = match (pod.settings().engine, pod.settings().guest) {
            (EngineKind::Local, _) => {
                format!("run `podlink pod down{pod_flag}`, `podlink setup{pod_flag}`, then `podlink pod up{pod_flag}`")
            }
            (_, GuestOs::Windows) => format!(
                "copy {} to C:\\OEM\\agent_token.txt in the guest (`podlink setup{pod_flag}` stages it anew); the agent takes it within 2 s",
                staged.display()
            ),
            (_, GuestOs::Linux) => format!(
                "copy {} to the agent's token file in the guest; the agent takes it within 2 s",
                staged.display()
            ),
        };
        let place = Place { address: pod.address(), kind: pod.settings().agent, pod_flag, token_fix };
        Self::at(place, pod.token()?, settings)
    }

    fn at(place: Place, token: Token, settings: ClientSettings) -> Result<Self> {
        let agents = Arc::new(Agents::default());
        let calls = match place.kind {
            AgentKind::Podlink => http::proving(ProofLayer(Arc::new(Guard {
                token: token.clone(),
                address: place.address,
                connect_deadline: settings.connect_deadline,
                proof_deadline: settings.proof_deadline,
                agents: agents.clone(),
            })))?,
            AgentKind::Winpodx => http::unproved(settings.connect_deadline)?,
        };
        Ok(Self { calls, probes: http::probing(settings.health_deadline)?, token, agents, place, settings })
    }

    /// What names the pod on a command line, with a blank before; nothing where this is no pod's agent.
    pub(crate) fn pod_flag(&self) -> &str {
        &self.place.pod_flag
    }

    /// Where the agent is looked for.
    pub const fn address(&self) -> SocketAddr {
        self.place.address
    }

    /// The client's deadlines and bounds.
    pub const fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Looks once at what answers, over a new connection and without the token.
    ///
    /// # Errors
    /// Only when the system has no randomness for a challenge: whatever the peer does is a [`Seen`].
    pub async fn health(&self) -> Result<Seen> {
        let mut request = self.probes.get(self.url(PATH_HEALTH));
        let expected = match self.place.kind {
            AgentKind::Podlink => {
                let challenge = Challenge::generate()?;
                request = request.header(HEADER_CHALLENGE, challenge.to_hex());
                Expected::Proof(self.token.prove(&challenge))
            }
            AgentKind::Winpodx => Expected::Nothing,
        };
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Ok(seen_of(&error)),
        };
        let status = response.status();
        let proof = response.headers().get(HEADER_PROOF).cloned();
        Ok(match read_body(response, MAX_HEALTH).await {
            Ok(body) => judge(status, proof.as_ref().map(header::HeaderValue::as_bytes), &body, &expected).0,
            Err(BodyError::Broken(error)) => seen_of(&error),
            Err(BodyError::TooLarge) => {
                Seen::Foreign { status: Some(status.as_u16()), what: "a body that is far too long".to_owned() }
            }
        })
    }

    /// The error that a call which met this would end with.
    pub fn error_of(&self, seen: &Seen) -> Error {
        self.place.error(seen)
    }

    /// Asks the agent who it is: the authorized call that changes nothing.
    ///
    /// # Errors
    /// Each condition of the peer has its [`ErrorKind`].
    pub async fn whoami(&self) -> Result<Whoami> {
        self.get(PATH_WHOAMI).await?.parse(&self.place)
    }

    /// The authorized call that changes nothing, whatever kind of agent it is.
    ///
    /// # Errors
    /// As [`AgentClient::whoami`].
    pub async fn check_token(&self) -> Result<()> {
        match self.place.kind {
            AgentKind::Podlink => self.whoami().await.map(drop),
            // it has no such path; without the right token every path is 401, with it this one is not found
            AgentKind::Winpodx => {
                let answer = self.get(PATH_WHOAMI).await?;
                if matches!(answer.status.as_u16(), 401 | 403) { Err(self.place.token_mismatch()) } else { Ok(()) }
            }
        }
    }

    /// Ends a call by its id; true where the agent knew it.
    ///
    /// # Errors
    /// When the agent cannot be reached within a short deadline.
    pub async fn cancel(&self, id: &RequestId) -> Result<bool> {
        let request = self.request(Method::DELETE, &format!("{PATH_EXEC}/{id}"), self.settings.cancel_deadline);
        let response = request.send().await.map_err(|error| self.sending_failed(&error))?;
        Ok(response.status().is_success())
    }

    /// A GET of a whole answer.
    async fn get(&self, path: &str) -> Result<Answer> {
        match self.ask(path, Form::Whole).await? {
            Reply::Whole(answer) => Ok(answer),
            Reply::Stream(_) => Err(garbled("a stream that was not asked for")),
        }
    }

    /// A GET, repeated once where a connection broke under it.
    async fn ask(&self, path: &str, form: Form) -> Result<Reply> {
        let mut again = true;
        loop {
            let deadline = Instant::now() + self.settings.call_deadline;
            match self.attempt(self.authorized(Method::GET, path), form, deadline).await {
                Err(TryError::Broken(_)) if again => again = false,
                sent => return sent.map_err(|error| self.said(error)),
            }
        }
    }

    /// A request that changes something, and its answer's value; never repeated.
    async fn change<T: DeserializeOwned>(&self, request: RequestBuilder, within: Duration) -> Result<T> {
        match self.attempt(request, Form::Whole, Instant::now() + within).await.map_err(|error| self.said(error))? {
            Reply::Whole(answer) => answer.parse(&self.place),
            Reply::Stream(_) => Err(garbled("a stream that was not asked for")),
        }
    }

    /// What a try that failed comes to where it is the last one.
    fn said(&self, error: TryError) -> Error {
        match error {
            TryError::Unsent(error) | TryError::Broken(error) | TryError::Answered(error) => error,
            TryError::TimedOut => self.place.error(&Seen::Silent),
        }
    }

    /// A request that bears the token, with a deadline for all of the answer.
    fn request(&self, method: Method, path: &str, deadline: Duration) -> RequestBuilder {
        self.authorized(method, path).timeout(deadline)
    }

    /// A request that bears the token; its deadline is the caller's.
    fn authorized(&self, method: Method, path: &str) -> RequestBuilder {
        let bearer = Zeroizing::new(format!("Bearer {}", self.token.expose().as_str()));
        let mut request = self.calls.request(method, self.url(path));
        if let Ok(mut value) = header::HeaderValue::from_str(&bearer) {
            value.set_sensitive(true); // shown by no Debug text
            request = request.header(header::AUTHORIZATION, value);
        }
        match self.place.kind {
            AgentKind::Podlink => request.header(HEADER_PROTOCOL, PROTOCOL_VERSION),
            AgentKind::Winpodx => request,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.place.address)
    }

    /// The error of a request that did not come to an answer.
    fn sending_failed(&self, error: &reqwest::Error) -> Error {
        let seen = seen_of(error);
        let said = self.place.error(&seen);
        match seen {
            // the one condition with many causes; of the layers above the cause none says more
            Seen::Reset => said.with_source(root_cause(error)),
            _ => said,
        }
    }

    fn too_large(&self) -> Error {
        Error::new(ErrorKind::Internal, format!("the answer is over {} bytes", self.settings.max_answer))
            .with_hint("ask for less output: the rest of this answer was not read")
    }
}

/// The text at the bottom of an error's chain.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    deepest.to_string()
}
