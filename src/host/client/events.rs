//! The agent's events as a stream that survives connections: it comes back by itself, from where it was.

use std::time::Duration;

use reqwest::{Method, Response, header};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient,
    answer::Answer,
    health::Seen,
    http::{BodyError, read_body},
};
use crate::protocol::{HEADER_LAST_EVENT_ID, MAX_EVENT, MEDIA_EVENTS, PATH_EVENTS, SseDecoder};

/// Signs of life that may be missing in a row before the peer counts as dead.
const MISSED: u32 = 3;
/// Most bytes of an event: its data, and what stands around it.
const MOST: usize = 2 * MAX_EVENT;
/// A stream has no end.
const NO_DEADLINE: Duration = Duration::MAX;

/// Which events, and from where on.
#[derive(Debug, Clone)]
pub struct EventsRequest {
    /// Names, or patterns like `exec.*`; none for all.
    pub types: Vec<String>,
    /// The id of the last event that is not wanted; `None` begins with what happens next.
    pub since: Option<String>,
    /// Whether what programs write is wanted too.
    pub output: bool,
    /// The patience with the agent.
    pub patience: EventsPatience,
}

/// The patience with an agent that tells its events.
#[derive(Debug, Clone)]
pub struct EventsPatience {
    /// How often it gives a sign of life; after three that are missing it counts as dead.
    pub keep_alive: Duration,
    /// The pause before the first try to reach it again; it doubles from there.
    pub first_retry: Duration,
    /// The longest pause.
    pub longest_retry: Duration,
}

impl EventsRequest {
    /// All events but output, from now on.
    pub const ALL: Self = Self { types: Vec::new(), since: None, output: false, patience: EventsPatience::DEFAULT };
}

impl EventsPatience {
    /// What the command line uses; the interval is the protocol's.
    pub const DEFAULT: Self = Self {
        keep_alive: Duration::from_secs(15),
        first_retry: Duration::from_millis(200),
        longest_retry: Duration::from_secs(5),
    };
}

/// One event of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEvent {
    /// What to resume with after it.
    pub id: String,
    /// Its name; see [`EventName`](crate::protocol::EventName) for those that this version knows.
    pub name: String,
    /// Its data: an object with `ts`.
    pub data: Value,
}

/// What a stream of events has to tell.
#[derive(Debug)]
pub enum EventItem {
    /// An event. `gap` and `lagged` tell of those that did not come.
    Event(AgentEvent),
    /// The agent was reached, or reached again.
    Connected,
    /// The agent is not reached, for this reason. Told once; it is tried on.
    Disconnected(Error),
}

/// The events of an agent, over as many connections as it takes.
///
/// # Example
/// ```no_run
/// use podlink::host::{AgentClient, EventItem, EventsRequest};
///
/// # async fn example(client: AgentClient) -> podlink::host::Result<()> {
/// let mut events = client.events(EventsRequest { types: vec!["exec.*".into()], ..EventsRequest::ALL });
/// loop {
///     if let EventItem::Event(event) = events.next().await? {
///         println!("{} {}", event.name, event.data);
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EventStream {
    client: AgentClient,
    request: EventsRequest,
    decoder: SseDecoder,
    connection: Option<Connection>,
    /// The next pause, and when the one that runs ends.
    pause: Duration,
    paused_until: Option<Instant>,
    /// That the agent is not reached has been told.
    told: bool,
}

#[derive(Debug)]
struct Connection {
    response: Response,
    since: Instant,
}

impl AgentClient {
    /// The agent's events; nothing is sent before the first one is waited for.
    pub fn events(&self, request: EventsRequest) -> EventStream {
        EventStream {
            client: self.clone(),
            pause: request.patience.first_retry,
            request,
            decoder: SseDecoder::new(MOST),
            connection: None,
            paused_until: None,
            told: false,
        }
    }
}

impl EventStream {
    /// What to resume with, with another stream; empty where the agent has not been reached yet.
    pub fn last_id(&self) -> &str {
        self.decoder.last_id()
    }

    /// Waits for what comes next. An agent that is away is waited for, without an end. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// What will not go away: another token, another program, an agent that refuses the request or knows no events.
    pub async fn next(&mut self) -> Result<EventItem> {
        loop {
            match self.decoder.next_event() {
                Ok(Some(event)) => {
                    self.pause = self.request.patience.first_retry;
                    let data = serde_json::from_str(&event.data).map_err(|error| {
                        Error::new(ErrorKind::ForeignProgram, "an event is not one of the agent's").with_source(error)
                    })?;
                    return Ok(EventItem::Event(AgentEvent { id: event.id, name: event.name, data }));
                }
                Err(error) => {
                    return Err(
                        Error::new(ErrorKind::ForeignProgram, "the events are not an agent's").with_source(error)
                    );
                }
                Ok(None) => {}
            }
            let lost = match &mut self.connection {
                Some(connection) => {
                    let silence = self.request.patience.keep_alive * MISSED;
                    match timeout(silence, connection.response.chunk()).await {
                        Ok(Ok(Some(bytes))) => {
                            self.decoder.push(&bytes);
                            continue;
                        }
                        Ok(Ok(None)) => Error::new(
                            ErrorKind::AgentLost,
                            "the agent has ended the stream: it stops, or has another token",
                        ),
                        Ok(Err(error)) => self.client.sending_failed(&error),
                        Err(_) => self.client.error_of(&Seen::Silent),
                    }
                }
                None => match self.connect().await {
                    Ok(response) => {
                        self.connection = Some(Connection { response, since: Instant::now() });
                        self.decoder.reconnected();
                        self.told = false;
                        return Ok(EventItem::Connected);
                    }
                    Err(error) if !may_go_away(&error) => return Err(error),
                    Err(error) => error,
                },
            };
            self.disconnected();
            if !std::mem::replace(&mut self.told, true) {
                return Ok(EventItem::Disconnected(lost));
            }
        }
    }

    fn disconnected(&mut self) {
        let patience = &self.request.patience;
        let lived =
            self.connection.take().is_some_and(|connection| connection.since.elapsed() > patience.longest_retry);
        if lived {
            self.pause = patience.first_retry;
        }
        self.paused_until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(patience.longest_retry);
    }

    async fn connect(&mut self) -> Result<Response> {
        if let Some(until) = self.paused_until {
            sleep_until(until).await;
            self.paused_until = None;
        }
        let mut query = vec![format!("output={}", u8::from(self.request.output))];
        if !self.request.types.is_empty() {
            query.push(format!("types={}", encoded(&self.request.types.join(","))));
        }
        let last_id = self.decoder.last_id();
        if let (true, Some(since)) = (last_id.is_empty(), &self.request.since) {
            query.push(format!("since={}", encoded(since)));
        }
        let client = &self.client;
        let path = format!("{PATH_EVENTS}?{}", query.join("&"));
        let mut request = client.request(Method::GET, &path, NO_DEADLINE).header(header::ACCEPT, MEDIA_EVENTS);
        if !last_id.is_empty() {
            request = request.header(HEADER_LAST_EVENT_ID, last_id);
        }
        let answer = async {
            let response = request.send().await.map_err(|error| client.sending_failed(&error))?;
            let status = response.status();
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            if status.is_success() && kind.is_some_and(|kind| kind.starts_with(MEDIA_EVENTS)) {
                return Ok(response);
            }
            let body = read_body(response, client.settings.max_answer).await.map_err(|error| match error {
                BodyError::Broken(error) => client.sending_failed(&error),
                BodyError::TooLarge => client.too_large(),
            })?;
            // a value where a stream was asked for is as wrong as any other answer
            Err(match (Answer { status, body }).parse::<Value>(&client.place) {
                Err(error) => error,
                Ok(_) => Error::new(ErrorKind::ForeignProgram, "the answer is not a stream of events"),
            })
        };
        timeout(client.settings.call_deadline, answer).await.unwrap_or_else(|_| Err(client.error_of(&Seen::Silent)))
    }
}

/// Whether waiting may help.
fn may_go_away(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Refused
            | Kind::Reset
            | Kind::Silent
            | Kind::NotReady
            | Kind::InstallFailed
            | Kind::Busy
            | Kind::AgentLost
            | Kind::AgentStopping
    )
}

/// A text as the value of a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*,".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
