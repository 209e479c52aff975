//! A client of `/exec/attach` and `/processes/{id}/attach`: a WebSocket that a test reads and writes in turn.

use std::{
    io,
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket,
    client::IntoClientRequest as _,
    protocol::{WebSocketConfig, frame::coding::CloseCode},
};

use super::{Agent, Http, schema};

/// Longer than anything takes; a test that waits this long has failed.
const DEADLINE: Duration = Duration::from_mins(1);

/// What the agent said.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Out(Vec<u8>),
    Err(Vec<u8>),
    Status(Value),
    /// With its code.
    Close(u16),
    /// The connection ended without a close.
    Cut,
}

/// All that the agent said to the end, put together.
#[derive(Debug, Default)]
pub struct Heard {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// What came on channel 3, the first message and the last included.
    pub statuses: Vec<Value>,
    /// The close code; none where the connection was cut.
    pub close: Option<u16>,
}

impl Heard {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The last status: the result.
    #[track_caller]
    pub fn result(&self) -> &Value {
        self.statuses.last().unwrap_or_else(|| panic!("no status came: {self:?}"))
    }

    /// Asserts an end in order, and returns the exit code.
    #[track_caller]
    pub fn rc(&self) -> i64 {
        assert_eq!(self.close, Some(1000), "{:?}", self.statuses);
        self.result()["rc"].as_i64().unwrap_or_else(|| panic!("no result: {:?}", self.statuses))
    }
}

/// An attached client.
pub struct Attached {
    pub socket: WebSocket<TcpStream>,
}

impl Agent {
    /// A request for an upgrade, to be built up.
    pub fn upgrade(&self, target: &str) -> Http {
        self.http("GET", target)
            .replace("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    /// A WebSocket on this path, upgraded.
    #[track_caller]
    pub fn websocket(&self, target: &str, headers: &[(&'static str, &str)]) -> Attached {
        Attached::upgrade(self.port(), &self.bearer(), target, headers)
    }

    /// Begins a call and waits until its program runs.
    #[track_caller]
    pub fn attach(&self, request: &Value) -> Attached {
        self.attach_as(request, &[])
    }

    /// With these headers.
    #[track_caller]
    pub fn attach_as(&self, request: &Value, headers: &[(&'static str, &str)]) -> Attached {
        let mut client = self.websocket("/exec/attach", headers);
        client.send(Message::text(request.to_string()));
        client
    }

    /// Attaches to a call that is known.
    #[track_caller]
    pub fn attach_to(&self, process_id: &str, offset: Option<u64>) -> Attached {
        let query = offset.map(|offset| format!("?offset={offset}")).unwrap_or_default();
        self.websocket(&format!("/processes/{process_id}/attach{query}"), &[])
    }
}

impl Attached {
    /// A WebSocket to the agent at this port, upgraded.
    #[track_caller]
    pub fn upgrade(port: u16, bearer: &str, target: &str, headers: &[(&'static str, &str)]) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let mut request = format!("ws://127.0.0.1:{port}{target}").into_client_request().unwrap();
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (socket, response) = tungstenite::client::client_with_config(request, stream, Some(config))
            .unwrap_or_else(|error| panic!("no upgrade: {error:?}"));
        for header in ["podlink-protocol", "x-request-id"] {
            assert!(response.headers().contains_key(header), "{response:?}");
        }
        Self { socket }
    }

    #[track_caller]
    pub fn send(&mut self, message: Message) {
        self.socket.send(message).unwrap();
    }

    /// A message of a channel.
    #[track_caller]
    pub fn channel(&mut self, channel: u8, payload: &[u8]) {
        self.send(Message::binary([&[channel], payload].concat()));
    }

    #[track_caller]
    pub fn types(&mut self, bytes: &[u8]) {
        self.channel(0, bytes);
    }

    #[track_caller]
    pub fn close_stdin(&mut self) {
        self.channel(255, &[0]);
    }

    #[track_caller]
    pub fn resize(&mut self, width: i64, height: i64) {
        self.channel(4, json!({"width": width, "height": height}).to_string().as_bytes());
    }

    #[track_caller]
    pub fn detach(&mut self) {
        self.channel(3, br#"{"detach":true}"#);
    }

    /// The next that the agent says; pings are answered on the way.
    #[track_caller]
    pub fn next(&mut self) -> Said {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "waited in vain for anything but pings");
            let message = match self.socket.read() {
                Ok(message) => message,
                Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("waited in vain for a message")
                }
                Err(_) => return Said::Cut,
            };
            match message {
                Message::Binary(bytes) => {
                    let (channel, payload) = bytes.split_first().unwrap();
                    return match channel {
                        1 => Said::Out(payload.to_vec()),
                        2 => Said::Err(payload.to_vec()),
                        3 => {
                            let status = serde_json::from_slice(payload).unwrap();
                            schema::check("AttachStatus", &status);
                            Said::Status(status)
                        }
                        other => panic!("channel {other}"),
                    };
                }
                Message::Close(frame) => {
                    drop(self.socket.flush()); // our answer to it
                    return Said::Close(frame.map_or(0, |frame| u16::from(frame.code)));
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the agent has read all that was sent so far.
    #[track_caller]
    pub fn is_heard(&mut self) {
        self.send(Message::Ping("are you there".into()));
        loop {
            match self.socket.read().unwrap() {
                Message::Pong(bytes) if &bytes[..] == b"are you there" => return,
                Message::Ping(_) | Message::Binary(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The process id of the call, from the first message.
    #[track_caller]
    pub fn started(&mut self) -> String {
        match self.next() {
            Said::Status(status) if status["pid"].as_u64().is_some() => {
                status["process_id"].as_str().unwrap().to_owned()
            }
            other => panic!("not the start: {other:?}"),
        }
    }

    /// Reads until the text stands in what came on stdout; returns all of it.
    #[track_caller]
    pub fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let mut out = Vec::new();
        while !String::from_utf8_lossy(&out).contains(wanted) {
            assert!(Instant::now() < deadline, "waited in vain for {wanted:?}");
            match self.next() {
                Said::Out(bytes) => out.extend(bytes),
                Said::Status(status) if status.get("pid").is_some() => {}
                other => panic!("{other:?} came, and not {wanted:?}, after {:?}", String::from_utf8_lossy(&out)),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Reads to the end.
    #[track_caller]
    pub fn rest(&mut self) -> Heard {
        let mut heard = Heard::default();
        loop {
            match self.next() {
                Said::Out(bytes) => heard.out.extend(bytes),
                Said::Err(bytes) => heard.err.extend(bytes),
                Said::Status(status) => heard.statuses.push(status),
                Said::Close(code) => {
                    heard.close = Some(code);
                    return heard;
                }
                Said::Cut => return heard,
            }
        }
    }

    /// Goes away: with a reset, or by closing the socket.
    pub fn vanish(self, reset: bool) {
        if reset {
            rustix::net::sockopt::set_socket_linger(self.socket.get_ref(), Some(Duration::ZERO)).unwrap();
        }
        drop(self.socket);
    }

    /// Says the WebSocket's goodbye.
    pub fn close(mut self) {
        let frame = tungstenite::protocol::CloseFrame { code: CloseCode::Normal, reason: "".into() };
        drop(self.socket.close(Some(frame)));
        while self.socket.read().is_ok() {}
    }
}
