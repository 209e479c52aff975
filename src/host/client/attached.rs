//! An attached call: what goes to its program, and what comes from it.

use std::{
    sync::Arc,
    time::{Duration, Instant as Moment},
};

use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use hyper::body::Bytes;
use reqwest::Upgraded;
use tokio::{
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message, error::ProtocolError, protocol::frame::coding::CloseCode},
};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient,
    answer::error_of,
    frames::garbled,
    patience::{GivenUp, Patience},
};
use crate::protocol::{
    AttachControl, AttachStatus, CHANNEL_CLOSE, CHANNEL_RESIZE, CHANNEL_STATUS, CHANNEL_STDERR, CHANNEL_STDIN,
    CHANNEL_STDOUT, ExecResult, Gap, TerminalSize,
};

pub(super) type Socket = WebSocketStream<Upgraded>;

/// Bytes of a message to stdin: more would only lie in queues.
const STDIN_PIECE: usize = 64 * 1024;

/// A call that this side is attached to. Dropped, it counts as a caller that has gone away.
#[derive(Debug)]
pub struct Attached {
    process_id: String,
    input: AttachedInput,
    output: AttachedOutput,
}

/// What goes to the program.
#[derive(Debug)]
pub struct AttachedInput {
    line: Arc<Line>,
}

/// What comes from the program.
#[derive(Debug)]
pub struct AttachedOutput {
    messages: SplitStream<Socket>,
    line: Arc<Line>,
    patience: Patience,
    pub(super) process_id: String,
    /// Behind the last byte that was handed out.
    pub(super) offset: u64,
    /// What was lost before the very beginning is not to be told.
    from_oldest: bool,
    /// The call ends where it has no caller.
    pub(super) needs_caller: bool,
    /// For how long the call is looked for where the connection is lost.
    pub(super) life: Duration,
    /// Since when nothing has come, where the connection before this one was lost.
    pub(super) broken_at: Option<Moment>,
    /// The last word has been said.
    over: bool,
}

/// What happens in an attached call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachEvent {
    /// Bytes of standard output, or of the terminal.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// Output that the agent does not have any more.
    Gap(Gap),
    /// It runs on without this side, as was asked for; the last event.
    Detached {
        /// The offset behind the last byte that was handed out.
        offset: u64,
    },
    /// It has ended; the last event. The result is without the output.
    Exit(ExecResult),
}

/// The way to the agent, and the sign of life on it.
struct Line {
    client: AgentClient,
    messages: Arc<Mutex<SplitSink<Socket, Message>>>,
    alive: JoinHandle<()>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.alive.abort();
    }
}

/// Says now and then that this side lives, also while nobody reads: pings lie behind the output then.
async fn stay_alive(messages: Arc<Mutex<SplitSink<Socket, Message>>>, every: Duration) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if messages.lock().await.send(Message::Pong(Bytes::new())).await.is_err() {
            return;
        }
    }
}

impl Attached {
    /// Says what is wanted, and waits until the program runs. A call that begins so needs its caller.
    pub(super) async fn begin(
        client: &AgentClient,
        socket: Socket,
        first: Option<Message>,
        within: Duration,
    ) -> Result<Self> {
        let needs_caller = first.is_some();
        let (mut sink, messages) = socket.split();
        let ping = client.settings.attach_ping;
        if let Some(first) = first {
            match tokio::time::timeout(client.settings.call_deadline, sink.send(first)).await {
                Ok(sent) => sent.map_err(|error| client.lost().with_source(error))?,
                Err(_) => return Err(client.place.error(&super::Seen::Silent)),
            }
        }
        let sink = Arc::new(Mutex::new(sink));
        let alive = tokio::spawn(stay_alive(Arc::clone(&sink), ping / 2));
        let line = Arc::new(Line { client: client.clone(), messages: sink, alive });
        let patience = Patience::new(ping, None);
        let kept = if needs_caller { client.settings.orphan_life } else { client.settings.attached_job_life };
        let mut output = AttachedOutput {
            messages,
            line: Arc::clone(&line),
            patience,
            process_id: String::new(),
            offset: 0,
            from_oldest: false,
            needs_caller,
            life: kept,
            broken_at: None,
            over: false,
        };
        let started = async {
            match output.word().await? {
                Word::Status(AttachStatus::Started(started)) => Ok(started.process_id),
                Word::Status(AttachStatus::Error(body)) => Err(error_of(*body, &client.place)),
                _ => Err(garbled("something else than the beginning of an attached call")),
            }
        };
        let process_id = tokio::time::timeout(within, started).await.unwrap_or_else(|_| Err(client.overdue()))?;
        output.process_id.clone_from(&process_id);
        Ok(Self { process_id, input: AttachedInput { line }, output })
    }

    /// Its output begins here, or with the oldest that there is.
    pub(super) fn starts_at(&mut self, offset: Option<u64>) {
        self.output.offset = offset.unwrap_or(0);
        self.output.from_oldest = offset.is_none();
    }

    /// It is the same call as on a connection that has been lost since.
    pub(super) const fn continues(&mut self, before: &AttachedOutput, broken_at: Moment) {
        self.output.needs_caller = before.needs_caller;
        self.output.life = before.life;
        self.output.broken_at = Some(broken_at);
    }

    /// The agent's name for the call.
    pub fn process_id(&self) -> &str {
        &self.process_id
    }

    /// Both directions, each to be used on its own. The call is attached until both are dropped.
    pub fn split(self) -> (AttachedInput, AttachedOutput) {
        (self.input, self.output)
    }
}

impl AttachedInput {
    /// Writes to the program's stdin; returns once the bytes are on their way, which they are not while a program that
    /// reads none lets too many lie.
    ///
    /// # Errors
    /// [`ErrorKind::AgentLost`] where the connection is gone; the output says why.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(STDIN_PIECE) {
            self.send(CHANNEL_STDIN, piece).await?;
        }
        Ok(())
    }

    /// Closes the program's stdin: it reads the end.
    ///
    /// # Errors
    /// As [`AttachedInput::write`].
    pub async fn close_stdin(&mut self) -> Result<()> {
        self.send(CHANNEL_CLOSE, &[CHANNEL_STDIN]).await
    }

    /// Gives the program's terminal another size.
    ///
    /// # Errors
    /// As [`AttachedInput::write`].
    pub async fn resize(&mut self, rows: u16, cols: u16) -> Result<()> {
        self.send_json(CHANNEL_RESIZE, &TerminalSize { width: cols.into(), height: rows.into() }).await
    }

    /// Asks that the program run on without this side; [`AttachEvent::Detached`] says that it does.
    ///
    /// # Errors
    /// As [`AttachedInput::write`].
    pub async fn detach(&mut self) -> Result<()> {
        self.send_json(CHANNEL_STATUS, &AttachControl { detach: true }).await
    }

    async fn send_json(&mut self, channel: u8, value: &impl serde::Serialize) -> Result<()> {
        let json = serde_json::to_vec(value)
            .map_err(|error| Error::new(ErrorKind::Internal, "a message cannot be written").with_source(error))?;
        self.send(channel, &json).await
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) -> Result<()> {
        let mut message = Vec::with_capacity(1 + bytes.len());
        message.push(channel);
        message.extend_from_slice(bytes);
        let sent = self.line.messages.lock().await.send(Message::binary(message)).await;
        sent.map_err(|error| self.line.client.lost().with_source(error))
    }
}

/// One message of the agent's.
enum Word {
    Output(AttachEvent),
    Status(AttachStatus),
}

impl AttachedOutput {
    /// How far the output has been handed out: where [`AgentClient::attach_to`] can take it up.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn client(&self) -> &AgentClient {
        &self.line.client
    }

    /// The next event; `None` after the last one or an error. The call to it can be dropped without loss.
    ///
    /// It must be called again and again: pings are answered in it, and a dead peer is found in it.
    ///
    /// # Errors
    /// [`ErrorKind::AgentLost`] where the connection broke; each other end of a call that is none of the program's own
    /// has its kind.
    pub async fn next(&mut self) -> Option<Result<AttachEvent>> {
        if self.over {
            return None;
        }
        let word = match self.word().await {
            // what was asked for is the oldest that there is
            Ok(Word::Status(AttachStatus::Gap { gap })) if self.from_oldest && gap.from == 0 => {
                (self.offset, self.from_oldest) = (gap.to, false);
                self.word().await
            }
            word => word,
        };
        let event = match word {
            Ok(Word::Output(event)) => {
                if let AttachEvent::Stdout(bytes) | AttachEvent::Stderr(bytes) = &event {
                    self.offset += bytes.len() as u64;
                }
                self.from_oldest = false;
                return Some(Ok(event));
            }
            Ok(Word::Status(AttachStatus::Gap { gap })) => {
                self.offset = gap.to;
                return Some(Ok(AttachEvent::Gap(gap)));
            }
            Ok(Word::Status(AttachStatus::Result(result))) => Ok(AttachEvent::Exit(*result)),
            Ok(Word::Status(AttachStatus::Detached { offset, .. })) => Ok(AttachEvent::Detached { offset }),
            Ok(Word::Status(AttachStatus::Error(body))) => Err(error_of(*body, &self.line.client.place)),
            Ok(Word::Status(AttachStatus::Started(_))) => Err(garbled("the beginning of a call twice")),
            Err(error) => Err(error),
        };
        self.over = true;
        Some(event)
    }

    /// The next message that says something.
    async fn word(&mut self) -> Result<Word> {
        loop {
            let message = match self.patience.wait(self.messages.next()).await {
                Ok(Some(Ok(Message::Binary(message)))) => message,
                Ok(Some(Ok(Message::Text(text)))) => text.into(),
                Ok(Some(Ok(Message::Close(close)))) => {
                    let lost = self.line.client.lost();
                    return Err(match close {
                        Some(close) if close.code == CloseCode::Away => {
                            Error::new(ErrorKind::AgentStopping, "the agent is going down, and the call with it")
                        }
                        Some(close) if close.code == CloseCode::Policy => {
                            Error::new(ErrorKind::Rejected, format!("the agent ended the connection: {}", close.reason))
                        }
                        _ => lost,
                    });
                }
                Ok(Some(Ok(_))) => continue, // a ping or a pong: a sign of life
                Ok(
                    Some(Err(
                        tungstenite::Error::ConnectionClosed
                        | tungstenite::Error::AlreadyClosed
                        | tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
                    ))
                    | None,
                ) => return Err(self.line.client.lost()),
                Ok(Some(Err(error @ (tungstenite::Error::Protocol(_) | tungstenite::Error::Capacity(_))))) => {
                    return Err(garbled("something that is no message of a WebSocket").with_source(error));
                }
                Ok(Some(Err(error))) => return Err(self.line.client.lost().with_source(error)),
                Err(GivenUp::Silent | GivenUp::Overdue) => {
                    let cause = Error::new(ErrorKind::Silent, "no sign of life came for too long");
                    return Err(self.line.client.lost().with_source(cause));
                }
            };
            if !self.process_id.is_empty() {
                self.broken_at = None; // more than the greeting has come
            }
            let Some(&channel) = message.first() else { continue };
            let rest = message.slice(1..);
            return Ok(match channel {
                CHANNEL_STDOUT => Word::Output(AttachEvent::Stdout(rest)),
                CHANNEL_STDERR => Word::Output(AttachEvent::Stderr(rest)),
                CHANNEL_STATUS => Word::Status(
                    serde_json::from_slice(&rest)
                        .map_err(|error| garbled("a status that cannot be read").with_source(error))?,
                ),
                _ => continue, // a channel of a newer agent
            });
        }
    }
}
