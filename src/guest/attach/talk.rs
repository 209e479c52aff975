//! The conversation with one attached client: listening and speaking at the same time, neither held up by the other.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code},
};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite;

use super::{
    super::{
        Deadlines,
        calls::{Finished, Joined, dimension},
        process::{Chunk, Reader},
    },
    backlog::{Backlog, Waiting, backlog},
    messages::{error, json, on, shortened},
};
use crate::protocol::{
    AttachControl, AttachStatus, CHANNEL_CLOSE, CHANNEL_RESIZE, CHANNEL_STATUS, CHANNEL_STDERR, CHANNEL_STDIN,
    CHANNEL_STDOUT, ErrorBody, ErrorCode, FrameKind, Started, TerminalSize,
};

/// How a conversation ends.
#[derive(Debug)]
pub(super) enum Parting {
    /// The client is gone, or does not answer.
    Gone,
    /// The client broke the rules.
    Breach(String),
    /// What the client asked for cannot be had.
    Refused(Box<ErrorBody>),
    /// The call has ended, and the client was told.
    Ended {
        /// Whether it ended because the agent stops.
        by_stop: bool,
    },
    /// The client lets the call run on.
    Detached,
    /// The agent goes down.
    Stopping,
}

impl Parting {
    /// For the log.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Gone => "the client is gone",
            Self::Breach(_) => "the client broke the rules",
            Self::Refused(_) => "refused",
            Self::Ended { .. } => "the call ended",
            Self::Detached => "detached",
            Self::Stopping => "the agent stops",
        }
    }
}

/// A conversation.
pub(super) struct Talk {
    speaker: Speaker,
    incoming: SplitStream<WebSocket>,
    deadlines: Deadlines,
    ending: watch::Receiver<bool>,
}

/// The agent's voice.
struct Speaker {
    sink: SplitSink<WebSocket, Message>,
    /// The offset behind the last output that was handed over for sending.
    sent: u64,
}

/// What listening and speaking tell one another.
#[derive(Debug, Default)]
struct Signs {
    /// The client has given a sign of life since the last ping.
    heard: AtomicBool,
    /// The client is not listened to, since the program does not read.
    deaf: AtomicBool,
}

/// The client takes nothing more.
struct Lost;

impl Talk {
    pub(super) fn new(socket: WebSocket, deadlines: &Deadlines, ending: watch::Receiver<bool>) -> Self {
        let (sink, incoming) = socket.split();
        Self { speaker: Speaker { sink, sent: 0 }, incoming, deadlines: deadlines.clone(), ending }
    }

    /// The message with which a client begins.
    pub(super) async fn first_message(&mut self) -> Result<Bytes, Parting> {
        let limit = self.deadlines.attach_request;
        let message = async {
            loop {
                match next(&mut self.incoming).await? {
                    Message::Text(text) => return Ok(text.into()),
                    Message::Binary(bytes) => return Ok(bytes),
                    Message::Ping(_) | Message::Pong(_) => {}
                    Message::Close(_) => return Err(Parting::Gone),
                }
            }
        };
        tokio::select! {
            message = timeout(limit, message) => {
                message.unwrap_or_else(|_| Err(Parting::Breach(format!("no request came within {limit:?}"))))
            }
            _ = self.ending.wait_for(|ending| *ending) => Err(Parting::Stopping),
        }
    }

    /// Connects the client with the call until one of them ends it.
    pub(super) async fn attached(&mut self, joined: Joined, mut reader: Reader) -> Parting {
        let (backlog, waiting) = backlog(joined.live());
        let signs = Signs::default();
        let farewell = self.deadlines.farewell;
        let ending = &mut self.ending;
        self.speaker.sent = reader.offset();
        let stopping = async {
            // the calls have ended by then; what is left is for a client that is slow to take its last words
            drop(ending.wait_for(|ending| *ending).await);
            sleep(farewell).await;
        };
        let parting = tokio::select! {
            parting = self.speaker.speak(&joined, &mut reader, waiting, &signs, self.deadlines.ping) => parting,
            parting = listen(&mut self.incoming, &backlog, &signs) => parting,
            () = stopping => Parting::Stopping,
        };
        if matches!(parting, Parting::Detached) && !joined.detach() {
            let detail = "a streamed call cannot run on without its caller; make it with `detach`, or attached";
            let body = ErrorBody { detail: Some(detail.to_owned()), ..ErrorBody::new(ErrorCode::Conflict) };
            return Parting::Refused(Box::new(body));
        }
        parting
    }

    /// The last words, and the end of the connection; bounded, whatever the client does.
    pub(super) async fn part(mut self, parting: Parting) {
        let (status, code, reason) = match parting {
            Parting::Gone => return,
            Parting::Breach(why) => (Some(error(ErrorCode::BadRequest, &why)), close_code::POLICY, why),
            Parting::Refused(body) => {
                let ours = matches!(body.error, ErrorCode::BadRequest | ErrorCode::BadBase64 | ErrorCode::TooLarge);
                let code = if ours { close_code::POLICY } else { close_code::NORMAL };
                (Some(AttachStatus::Error(body)), code, String::new())
            }
            Parting::Ended { by_stop: false } => (None, close_code::NORMAL, String::new()),
            Parting::Ended { by_stop: true } => (None, close_code::AWAY, "the agent stops".to_owned()),
            Parting::Detached => {
                let offset = self.speaker.sent;
                (Some(AttachStatus::Detached { detached: true, offset }), close_code::NORMAL, String::new())
            }
            Parting::Stopping => {
                let what = "the agent is going down";
                (Some(error(ErrorCode::AgentStopping, what)), close_code::AWAY, what.to_owned())
            }
        };
        let limit = self.deadlines.linger;
        let parting = async {
            if let Some(status) = status {
                self.speaker.status(&status).await?;
            }
            let close = CloseFrame { code, reason: Utf8Bytes::from(shortened(&reason)) };
            self.speaker.send(Message::Close(Some(close))).await?;
            // its answer to the close says that it has seen all of it
            while let Some(Ok(_)) = self.incoming.next().await {}
            Ok::<_, Lost>(())
        };
        if timeout(limit, parting).await.is_err() {
            tracing::debug!("the client did not answer the close");
        }
    }
}

impl Speaker {
    async fn speak(
        &mut self,
        joined: &Joined,
        reader: &mut Reader,
        waiting: Waiting,
        signs: &Signs,
        interval: Duration,
    ) -> Parting {
        let mut pulse = Pulse::new(interval);
        let told = self.tell(joined, reader, waiting, signs, &mut pulse).await;
        told.unwrap_or(Parting::Gone)
    }

    async fn tell(
        &mut self,
        joined: &Joined,
        reader: &mut Reader,
        waiting: Waiting,
        signs: &Signs,
        pulse: &mut Pulse,
    ) -> Result<Parting, Lost> {
        let start = loop {
            tokio::select! {
                start = joined.started() => break start,
                () = pulse.due() => self.ping(pulse, signs).await?,
            }
        };
        match start {
            Ok(start) => {
                waiting.feed(joined.input().ok());
                let process_id = joined.process_id().to_owned();
                self.status(&AttachStatus::Started(Started { process_id, pid: Some(start.pid) })).await?;
            }
            Err(finished) => return self.result(&finished).await,
        }
        loop {
            let chunk = tokio::select! {
                chunk = reader.next() => chunk,
                () = pulse.due() => {
                    self.ping(pulse, signs).await?;
                    continue;
                }
            };
            match chunk {
                Chunk::Output { kind, bytes } => {
                    let channel = if kind == FrameKind::Stderr { CHANNEL_STDERR } else { CHANNEL_STDOUT };
                    let waited = self.send_at(on(channel, &bytes), reader.offset()).await?;
                    if waited {
                        // there was no room on the way, and now there was: it reads
                        signs.heard.store(true, Ordering::Relaxed);
                    }
                }
                Chunk::Gap(gap) => {
                    let message = on(CHANNEL_STATUS, &json(&AttachStatus::Gap { gap }));
                    self.send_at(message, reader.offset()).await?;
                }
                Chunk::End => return self.result(&joined.finished().await).await,
            }
        }
    }

    async fn result(&mut self, finished: &Finished) -> Result<Parting, Lost> {
        let by_stop = serde_json::from_slice::<ErrorBody>(finished.body())
            .is_ok_and(|body| body.error == ErrorCode::AgentStopping);
        self.send(on(CHANNEL_STATUS, finished.body())).await?;
        Ok(Parting::Ended { by_stop })
    }

    /// Asks for a sign of life, unless the last question is still open.
    async fn ping(&mut self, pulse: &mut Pulse, signs: &Signs) -> Result<(), Lost> {
        let heard = signs.heard.swap(false, Ordering::Relaxed) || signs.deaf.load(Ordering::Relaxed);
        if pulse.asked && !heard {
            tracing::info!("the client has not answered a ping");
            return Err(Lost);
        }
        pulse.asked = true;
        self.send(Message::Ping(Bytes::new())).await?;
        // from here on it has time to answer, however long the question took to get on its way
        pulse.restart();
        Ok(())
    }

    async fn status(&mut self, status: &AttachStatus) -> Result<(), Lost> {
        self.send(on(CHANNEL_STATUS, &json(status))).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Lost> {
        let sent = self.sent;
        self.send_at(message, sent).await.map(drop)
    }

    /// Sends, and waits until it is on its way; tells whether it had to wait for the client. Dropped before that, the
    /// message was sent if and only if `sent` has moved on.
    async fn send_at(&mut self, message: Message, offset: u64) -> Result<bool, Lost> {
        let mut waited = false;
        let ready = poll_fn(|cx| {
            let ready = self.sink.poll_ready_unpin(cx);
            waited |= ready.is_pending();
            ready
        });
        ready.await.map_err(|error| lost(&error))?;
        self.sink.start_send_unpin(message).map_err(|error| lost(&error))?;
        self.sent = offset;
        let flushed = poll_fn(|cx| {
            let flushed = self.sink.poll_flush_unpin(cx);
            waited |= flushed.is_pending();
            flushed
        });
        flushed.await.map_err(|error| lost(&error))?;
        Ok(waited)
    }
}

/// When a sign of life is asked for.
struct Pulse {
    interval: Duration,
    next: Instant,
    asked: bool,
}

impl Pulse {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval, asked: false }
    }

    async fn due(&self) {
        sleep_until(self.next).await;
    }

    fn restart(&mut self) {
        self.next = Instant::now() + self.interval;
    }
}

/// Hears the client out; ends with the reason to part.
async fn listen(incoming: &mut SplitStream<WebSocket>, backlog: &Backlog, signs: &Signs) -> Parting {
    loop {
        let message = match next(incoming).await {
            Ok(message) => message,
            Err(parting) => return parting,
        };
        signs.heard.store(true, Ordering::Relaxed);
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(_) => return Parting::Breach("messages after the first are binary".to_owned()),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return Parting::Gone,
        };
        let Some(channel) = bytes.first().copied() else {
            return Parting::Breach("a message has its channel as its first byte".to_owned());
        };
        let payload = bytes.slice(1..);
        match channel {
            CHANNEL_STDIN => with_patience(backlog.typed(payload), signs).await,
            CHANNEL_CLOSE if payload[..] == [CHANNEL_STDIN] => with_patience(backlog.end(), signs).await,
            CHANNEL_CLOSE => return Parting::Breach("a client closes channel 0 alone".to_owned()),
            CHANNEL_RESIZE => match serde_json::from_slice::<TerminalSize>(&payload) {
                Ok(size) => backlog.resize(dimension(size.height), dimension(size.width)),
                Err(error) => return Parting::Breach(format!("a size is not one: {error}")),
            },
            CHANNEL_STATUS => match serde_json::from_slice::<AttachControl>(&payload) {
                Ok(AttachControl { detach: true }) => return Parting::Detached,
                Ok(AttachControl { detach: false }) => {}
                Err(error) => return Parting::Breach(format!("a message of channel 3 is not one: {error}")),
            },
            other => return Parting::Breach(format!("a client has no channel {other}")),
        }
    }
}

/// Nobody is listened to while the program does not read, so nobody is blamed for silence either.
async fn with_patience(typing: impl Future<Output = ()>, signs: &Signs) {
    signs.deaf.store(true, Ordering::Relaxed);
    typing.await;
    signs.heard.store(true, Ordering::Relaxed);
    signs.deaf.store(false, Ordering::Relaxed);
}

/// The next message, or why there is none.
async fn next(incoming: &mut SplitStream<WebSocket>) -> Result<Message, Parting> {
    let Some(message) = incoming.next().await else { return Err(Parting::Gone) };
    message.map_err(|error| {
        let error = error.into_inner();
        match error.downcast_ref::<tungstenite::Error>() {
            Some(tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                Parting::Gone
            }
            Some(tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)) => {
                Parting::Breach(error.to_string())
            }
            _ => Parting::Gone,
        }
    })
}

fn lost(error: &axum::Error) -> Lost {
    tracing::debug!(%error, "the client takes nothing more");
    Lost
}
