//! Streamed answers, read piece by piece: chunks, then Docker's frames or server-sent events.

use std::{collections::VecDeque, io::Read as _};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use podlink::protocol::{FrameDecoder, FrameKind, MEDIA_EVENTS, MEDIA_MULTIPLEXED};
use serde_json::Value;

use super::{
    http::{Answer, Pending},
    schema,
};

/// What a stream says.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Only that the agent is alive.
    Alive,
    /// The first event of server-sent ones.
    Started(Value),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Gap {
        from: u64,
        to: u64,
    },
    /// The last word.
    End(Value),
}

/// A streamed answer under way.
#[must_use]
#[derive(Debug)]
pub struct Stream {
    pub connection: Pending,
    /// Status and headers; no body.
    pub head: Answer,
    chunks: Dechunk,
    form: Form,
    ready: VecDeque<Item>,
    /// The offset behind what was handed out last, gaps included.
    pub offset: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Form {
    Frames(FrameDecoder),
    Events(Events),
}

/// All of a stream.
#[derive(Debug, Default)]
pub struct Whole {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub gaps: Vec<(u64, u64)>,
    /// Null where the stream was cut.
    pub end: Value,
}

impl Stream {
    /// Reads the head of an answer that must be a stream.
    #[track_caller]
    pub fn of(connection: Pending) -> Self {
        Self::try_of(connection).unwrap_or_else(|answer| panic!("no stream: {answer:?}"))
    }

    /// Reads the head of an answer; the whole of it where it is no stream.
    ///
    /// # Errors
    /// The answer that was no stream.
    pub fn try_of(mut connection: Pending) -> Result<Self, Box<Answer>> {
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        while !bytes.ends_with(b"\r\n\r\n") {
            connection.0.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {bytes:?}"));
            bytes.push(byte[0]);
        }
        let head = Answer::parse(&bytes);
        let form = match head.header("content-type") {
            Some(MEDIA_MULTIPLEXED) => Form::Frames(FrameDecoder::default()),
            Some(MEDIA_EVENTS) => Form::Events(Events::default()),
            _ => {
                bytes.extend(connection.rest());
                return Err(Box::new(Answer::parse(&bytes)));
            }
        };
        assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")), "{head:?}");
        head.is_stamped();
        assert!(head.header("x-process-id").is_some_and(|id| id.starts_with("p-")), "{head:?}");
        let (chunks, ready) = (Dechunk::default(), VecDeque::new());
        Ok(Self { connection, head, chunks, form, ready, offset: 0, buffer: vec![0; 64 * 1024] })
    }

    /// The agent's name for the call.
    pub fn process_id(&self) -> String {
        self.head.header("x-process-id").unwrap().to_owned()
    }

    /// What comes next; `None` at the end of the answer, or where the connection was cut.
    pub fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                match &item {
                    Item::Stdout(bytes) | Item::Stderr(bytes) => self.offset += bytes.len() as u64,
                    Item::Gap { from, to } => {
                        assert_eq!(*from, self.offset, "a gap begins where the output stopped");
                        self.offset = *to;
                    }
                    _ => {}
                }
                return Some(item);
            }
            let count = self.connection.0.read(&mut self.buffer).unwrap_or(0);
            if count == 0 {
                return None;
            }
            let mut body = Vec::new();
            self.chunks.push(&self.buffer[..count], &mut body);
            match &mut self.form {
                Form::Frames(decoder) => {
                    decoder.push(&body);
                    while let Some(frame) = decoder.next_frame().unwrap() {
                        self.ready.push_back(of_frame(frame.kind, frame.payload));
                    }
                }
                Form::Events(events) => self.ready.extend(events.push(&body)),
            }
        }
    }

    /// The next that is more than a sign of life.
    pub fn next_word(&mut self) -> Option<Item> {
        std::iter::from_fn(|| self.next()).find(|item| *item != Item::Alive)
    }

    /// Reads until `wanted` has come on stdout.
    #[track_caller]
    pub fn wait_for_stdout(&mut self, wanted: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            match self.next_word() {
                Some(Item::Stdout(bytes)) => seen.extend(bytes),
                Some(Item::Started(_)) => {}
                other => panic!("{other:?} instead of {wanted:?}"),
            }
        }
    }

    /// Everything to the end of the answer.
    pub fn whole(mut self) -> Whole {
        let mut whole = Whole::default();
        while let Some(item) = self.next() {
            assert!(whole.end.is_null(), "{item:?} after the last word");
            match item {
                Item::Alive | Item::Started(_) => {}
                Item::Stdout(bytes) => whole.stdout.extend(bytes),
                Item::Stderr(bytes) => whole.stderr.extend(bytes),
                Item::Gap { from, to } => whole.gaps.push((from, to)),
                Item::End(end) => whole.end = end,
            }
        }
        assert!(whole.end.is_null() || self.chunks.ended, "the last word ends the answer in order");
        whole
    }
}

fn of_frame(kind: FrameKind, payload: Vec<u8>) -> Item {
    match kind {
        FrameKind::Stdout if payload.is_empty() => Item::Alive,
        FrameKind::Stdout => Item::Stdout(payload),
        FrameKind::Stderr => Item::Stderr(payload),
        FrameKind::Gap => gap(&payload),
        FrameKind::End => end(&payload),
    }
}

fn gap(json: &[u8]) -> Item {
    let json = serde_json::from_slice(json).unwrap();
    schema::check("Gap", &json);
    Item::Gap { from: json["from"].as_u64().unwrap(), to: json["to"].as_u64().unwrap() }
}

fn end(json: &[u8]) -> Item {
    let json: Value = serde_json::from_slice(json).unwrap();
    let name = match &json {
        json if json.get("error").is_some() => "ErrorBody",
        json if json.get("running").is_some() => "Running",
        _ => "ExecResult",
    };
    schema::check(name, &json);
    Item::End(json)
}

/// Takes the chunks of an answer apart, wherever the pieces were cut.
#[derive(Debug, Default)]
pub struct Dechunk {
    /// Of a line that is not whole yet.
    line: Vec<u8>,
    left: usize,
    behind_data: bool,
    /// The last chunk has come, and the line behind it.
    pub ended: bool,
    last: bool,
}

impl Dechunk {
    /// Adds to `out` what these bytes carry.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            assert!(!self.ended, "{} bytes behind the end", bytes.len());
            if self.left > 0 {
                let count = self.left.min(bytes.len());
                out.extend_from_slice(&bytes[..count]);
                self.left -= count;
                self.behind_data = self.left == 0;
                bytes = &bytes[count..];
                continue;
            }
            self.line.push(bytes[0]);
            bytes = &bytes[1..];
            let Some(line) = self.line.strip_suffix(b"\r\n") else { continue };
            if self.last {
                assert!(line.is_empty(), "no trailers");
                self.ended = true;
            } else if self.behind_data {
                assert!(line.is_empty(), "{line:?}");
                self.behind_data = false;
            } else {
                self.left = usize::from_str_radix(std::str::from_utf8(line).unwrap(), 16).unwrap();
                self.last = self.left == 0;
            }
            self.line.clear();
        }
    }
}

/// Server-sent events by the rules of the HTML standard, section 9.2.6, from whatever pieces they come in.
#[derive(Debug, Default)]
pub struct Events {
    begun: bool,
    line: Vec<u8>,
    after_cr: bool,
    name: String,
    data: String,
}

impl Events {
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.after_cr) => {}
                b'\r' | b'\n' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    let line = if self.begun { &line[..] } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) };
                    let line = String::from_utf8_lossy(line).into_owned();
                    self.begun = true;
                    items.extend(self.take_line(&line));
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
        }
        items
    }

    fn take_line(&mut self, line: &str) -> Option<Item> {
        if line.is_empty() {
            return self.dispatch();
        }
        if line.starts_with(':') {
            return Some(Item::Alive);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data += value;
                self.data.push('\n');
            }
            other => panic!("a field that this agent does not send: {other}"),
        }
        None
    }

    fn dispatch(&mut self) -> Option<Item> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.is_empty() {
            return None;
        }
        let data = data.strip_suffix('\n').unwrap();
        Some(match name.as_str() {
            "started" => {
                let started = serde_json::from_str(data).unwrap();
                schema::check("Started", &started);
                Item::Started(started)
            }
            "stdout" => Item::Stdout(BASE64_STANDARD.decode(data).unwrap()),
            "stderr" => Item::Stderr(BASE64_STANDARD.decode(data).unwrap()),
            "gap" => gap(data.as_bytes()),
            "exit" => end(data.as_bytes()),
            other => panic!("an event of no known name: {other}"),
        })
    }
}
