//! A reader of `GET /events`: over a real socket, one event after the other.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    time::Duration,
};

use podlink::protocol::SseDecoder;
use serde_json::Value;

use super::{Agent, http::request};

/// Longer than any event takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
}

/// An open stream.
#[must_use]
#[derive(Debug)]
pub struct Events {
    stream: BufReader<TcpStream>,
    decoder: SseDecoder,
    /// All bytes of the body that came.
    pub raw: Vec<u8>,
    ended: bool,
}

impl Events {
    /// Asks for events; returns once the agent has said that they will come.
    #[track_caller]
    pub fn open(agent: &Agent, query: &str, headers: &[(&str, &str)]) -> Self {
        let bearer = agent.bearer();
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        let pending = agent.raw(&request("GET", &format!("/events{query}"), &all, b""));
        pending.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = BufReader::new(pending.0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "the head was cut: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let head = head.to_lowercase();
        for line in
            ["content-type: text/event-stream\r\n", "transfer-encoding: chunked\r\n", "cache-control: no-store\r\n"]
        {
            assert!(head.contains(line), "{head}");
        }
        let mut events = Self { stream, decoder: SseDecoder::new(1 << 20), raw: Vec::new(), ended: false };
        // the opening: from now on nothing can be missed
        events.more();
        events
    }

    /// Where a reader that comes back would go on.
    pub fn last_id(&self) -> String {
        self.decoder.last_id().to_owned()
    }

    /// Takes in one more piece; false at the end.
    #[track_caller]
    pub fn more(&mut self) -> bool {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the stream was cut");
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut piece = vec![0; length + 2];
        self.stream.read_exact(&mut piece).unwrap();
        piece.truncate(length);
        self.decoder.push(&piece);
        self.raw.extend(piece);
        self.ended = length == 0;
        !self.ended
    }

    /// The next event; `None` where the agent has ended the stream in order.
    #[track_caller]
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                let data: Value = serde_json::from_str(&event.data).unwrap();
                assert!(data["ts"].as_str().is_some_and(|ts| ts.len() == 24 && ts.ends_with('Z')), "{data}");
                return Some(Event { id: event.id, name: event.name, data });
            }
            if self.ended || !self.more() {
                return None;
            }
        }
    }

    #[track_caller]
    pub fn next(&mut self) -> Event {
        self.try_next().expect("the stream ended")
    }

    /// All up to the first of this name.
    #[track_caller]
    pub fn until(&mut self, name: &str) -> Vec<Event> {
        let mut all = vec![self.next()];
        while all.last().unwrap().name != name {
            all.push(self.next());
        }
        all
    }

    /// All to the end.
    #[track_caller]
    pub fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.try_next()).collect()
    }
}
