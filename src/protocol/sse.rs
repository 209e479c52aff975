//! Server-sent events as bytes: one is written on one line of data, and any are read by the rules of the HTML
//! standard. No I/O.

use std::{collections::VecDeque, error::Error, fmt};

/// One event as it goes over the wire. `id` and `name` hold no line break, which JSON on one line does not either.
pub fn sse_event(id: &str, name: &str, json: &str) -> Vec<u8> {
    debug_assert!(!(id.contains(['\r', '\n', '\0']) || name.contains(['\r', '\n']) || json.contains(['\r', '\n'])));
    [b"id: ", id.as_bytes(), b"\nevent: ", name.as_bytes(), b"\ndata: ", json.as_bytes(), b"\n\n"].concat()
}

/// Tells a reader where it stands, without an event: what it would resume with from now on.
pub fn sse_position(id: &str) -> Vec<u8> {
    debug_assert!(!id.contains(['\r', '\n', '\0']));
    [b"id: ", id.as_bytes(), b"\n\n"].concat()
}

/// A sign of life.
pub const SSE_ALIVE: &[u8] = b": alive\n\n";

/// One event that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// What to resume with after it; empty where the sender has never given an id.
    pub id: String,
    /// `message` where none was given.
    pub name: String,
    /// Its data; of several lines, with line feeds between them.
    pub data: String,
}

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseTooLarge {
    /// Most bytes that an event may take.
    pub cap: usize,
}

impl fmt::Display for SseTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event is over {} bytes", self.cap)
    }
}

impl Error for SseTooLarge {}

/// Reads events from whatever pieces the bytes come in.
///
/// # Example
/// ```
/// let mut decoder = podlink::protocol::SseDecoder::new(1024);
/// decoder.push(b"id: a-1\nevent: log\nda");
/// assert_eq!(decoder.next_event(), Ok(None));
/// decoder.push(b"ta: {}\n\n");
/// assert_eq!(decoder.next_event().unwrap().unwrap().data, "{}");
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    cap: usize,
    /// Of a line whose end has not come.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed now is a part of the same line end.
    after_return: bool,
    /// No line has ended yet: a byte-order mark may stand before the first.
    begun: bool,
    data: String,
    name: String,
    id: String,
    last_id: String,
    ready: VecDeque<SseEvent>,
    failed: bool,
}

impl SseDecoder {
    /// One that takes events of up to `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            after_return: false,
            begun: false,
            data: String::new(),
            name: String::new(),
            id: String::new(),
            last_id: String::new(),
            ready: VecDeque::new(),
            failed: false,
        }
    }

    /// What to resume with: the id of the last event that was whole, or a position that the sender has told since.
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// Begins anew, with another connection: half an event is none. What was whole is still handed out.
    pub fn reconnected(&mut self) {
        self.line.clear();
        self.data.clear();
        self.name.clear();
        self.id.clone_from(&self.last_id);
        (self.after_return, self.begun) = (false, false);
    }

    /// Takes in bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !self.failed && !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + part.len() > self.cap {
                self.failed = true;
                self.line = Vec::new();
                return;
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.line_ended(&line);
            self.line = line;
            self.line.clear();
        }
    }

    fn line_ended(&mut self, line: &[u8]) {
        let first = !std::mem::replace(&mut self.begun, true);
        let line = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| first).unwrap_or(line);
        if line.is_empty() {
            self.event_ended();
            return;
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"data" => {
                self.data.push_str(&value);
                self.data.push('\n');
            }
            b"event" => self.name = value.into_owned(),
            b"id" if !value.contains('\0') => self.id = value.into_owned(),
            // a comment, `retry`, or a field that nobody knows
            _ => {}
        }
    }

    fn event_ended(&mut self) {
        self.last_id.clone_from(&self.id);
        let name = std::mem::take(&mut self.name);
        let mut data = std::mem::take(&mut self.data);
        if data.pop().is_none() {
            return;
        }
        let name = if name.is_empty() { "message".to_owned() } else { name };
        self.ready.push_back(SseEvent { id: self.last_id.clone(), name, data });
    }

    /// The next whole event; `None` until more bytes have come.
    ///
    /// # Errors
    /// When an event is over the cap, once those before it have been taken; nothing after it is read.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseTooLarge> {
        match self.ready.pop_front() {
            Some(event) => Ok(Some(event)),
            None if self.failed => Err(SseTooLarge { cap: self.cap }),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Vec<(String, String, String)> {
        let mut decoder = SseDecoder::new(1 << 20);
        decoder.push(bytes);
        all(&mut decoder)
    }

    fn all(decoder: &mut SseDecoder) -> Vec<(String, String, String)> {
        std::iter::from_fn(|| decoder.next_event().unwrap()).map(|event| (event.id, event.name, event.data)).collect()
    }

    fn event(id: &str, name: &str, data: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), data.to_owned())
    }

    #[test]
    fn the_standards_own_examples() {
        assert_eq!(read(b"data: YHOO\ndata: +2\ndata: 10\n\n"), [event("", "message", "YHOO\n+2\n10")]);
        assert_eq!(
            read(b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n"),
            [event("1", "message", "first event"), event("", "message", "second event")],
            "one space is taken off, an id without a value empties it, and what has no end is no event"
        );
        assert_eq!(read(b"data\n\ndata\ndata\n\ndata:"), [event("", "message", ""), event("", "message", "\n")]);
        assert_eq!(read(b"data:test\n\ndata: test\n\n"), [event("", "message", "test"), event("", "message", "test")]);
    }

    #[test]
    fn line_ends_of_every_kind_and_a_mark_at_the_start() {
        for end in ["\n", "\r", "\r\n"] {
            let text = "\u{feff}id: a-1|event: x|data: 1|data: 2||: c||data: 3||".replace('|', end);
            assert_eq!(read(text.as_bytes()), [event("a-1", "x", "1\n2"), event("a-1", "message", "3")], "{end:?}");
        }
        assert_eq!(read(b"data: 1\r\n\rdata: 2\n\r\n"), [event("", "message", "1"), event("", "message", "2")]);
        assert_eq!(read("data: 1\n\n\u{feff}data: 2\n\n".as_bytes()), [event("", "message", "1")], "only at the start");
    }

    #[test]
    fn an_id_without_data_is_a_position_and_one_with_a_nul_is_none() {
        let mut decoder = SseDecoder::new(100);
        decoder.push(b"id: a-7\n\n");
        assert_eq!((decoder.next_event(), decoder.last_id()), (Ok(None), "a-7"));
        decoder.push(b"id: a-8\0\ndata: x\n\nid: a-9\nda");
        assert_eq!(all(&mut decoder), [event("a-7", "message", "x")]);
        assert_eq!(decoder.last_id(), "a-7", "what is not whole moves nothing");
        decoder.reconnected();
        decoder.push(b"data: y\n\n");
        assert_eq!(all(&mut decoder), [event("a-7", "message", "y")]);
    }

    #[test]
    fn what_is_over_the_cap_is_an_error_and_what_came_before_it_is_not_lost() {
        for endless in [
            "data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "data: aaaaaaaaa\ndata: aaaaaaaaa\ndata:a\n\n",
            ": aaaaaaaaaaaaaaaaaaaaaaa\n",
        ] {
            let mut decoder = SseDecoder::new(20);
            decoder.push(b"data: short\n\n");
            decoder.push(endless.as_bytes());
            assert_eq!(decoder.next_event().unwrap().unwrap().data, "short");
            assert_eq!(decoder.next_event(), Err(SseTooLarge { cap: 20 }), "{endless}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_wherever_it_is_cut(
            texts in proptest::collection::vec(any::<String>(), 0..6),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut bytes = Vec::new();
            let mut wanted = Vec::new();
            for (number, text) in texts.iter().enumerate() {
                let json = serde_json::to_string(&serde_json::json!({"text": text})).unwrap();
                bytes.extend(sse_event(&format!("e-{number}"), "log", &json));
                bytes.extend_from_slice(SSE_ALIVE);
                wanted.push(event(&format!("e-{number}"), "log", &json));
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let mut decoder = SseDecoder::new(1 << 20);
            for cut in cuts.windows(2) {
                decoder.push(&bytes[cut[0]..cut[1]]);
            }
            prop_assert_eq!(all(&mut decoder), wanted);
        }

        #[test]
        fn bytes_of_any_kind_are_read_the_same_in_one_piece_and_in_many(
            bytes in proptest::collection::vec(prop_oneof![
                Just(b"\r".to_vec()), Just(b"\n".to_vec()), Just(b"data:".to_vec()), Just(b"id: ".to_vec()),
                Just(b"event".to_vec()), Just(b"\xef\xbb\xbf".to_vec()), Just(b"\0".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ], 0..40),
        ) {
            let bytes = bytes.concat();
            let mut decoder = SseDecoder::new(1 << 20);
            for byte in &bytes {
                decoder.push(std::slice::from_ref(byte));
            }
            prop_assert_eq!(all(&mut decoder), read(&bytes));
        }
    }
}
