//! The smallest HTTP client: what a test sends is exactly what it says, broken or not.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// Longer than any answer takes; a test that waits this long has failed.
const DEADLINE: Duration = Duration::from_secs(100);

/// An answer, taken apart.
#[must_use]
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Null where the body is not JSON.
    pub json: Value,
}

impl Answer {
    /// A header's value; the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Takes a whole answer apart, head and body.
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body = bytes[end + 4..].to_vec();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Self { status, headers, body, json }
    }
}

/// A request that has been sent and not been answered yet.
#[must_use]
#[derive(Debug)]
pub struct Pending(pub TcpStream);

impl Pending {
    /// Connects and sends these bytes.
    pub fn send(port: u16, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(bytes).unwrap();
        Self(stream)
    }

    /// Sends more.
    pub fn more(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads until the other side closes.
    pub fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // a reset after the answer is the other side's right; what came before it counts
        drop(self.0.read_to_end(&mut bytes));
        bytes
    }

    /// The answer; the request has to have asked for the connection to be closed.
    #[track_caller]
    pub fn answer(self) -> Answer {
        Answer::parse(&self.rest())
    }

    /// Goes away without reading: by FIN, or by a reset.
    pub fn hang_up(self, reset: bool) {
        if reset {
            rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
        } else {
            self.0.shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// The bytes of a request that asks for the connection to be closed.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(key, _)| key.eq_ignore_ascii_case("host")) {
        head += "host: 127.0.0.1\r\n";
    }
    for (key, value) in headers {
        write!(head, "{key}: {value}\r\n").unwrap();
    }
    if !body.is_empty() {
        write!(head, "content-length: {}\r\n", body.len()).unwrap();
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A request in the making; `Host` and `Connection: close` are there from the start and can be taken away.
#[must_use]
#[derive(Debug, Clone)]
pub struct Http {
    port: u16,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Http {
    pub fn new(port: u16, method: &str, target: &str) -> Self {
        let headers = [("Host", "127.0.0.1"), ("Connection", "close")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { port, line: format!("{method} {target} HTTP/1.1"), headers, body: Vec::new() }
    }

    /// The request line, whole.
    pub fn line(mut self, line: &str) -> Self {
        line.clone_into(&mut self.line);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// In the place of what stands there.
    pub fn replace(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// A body with its length.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.header("Content-Length", &length)
    }

    /// A JSON body with its type and length.
    pub fn json(self, value: &Value) -> Self {
        self.header("Content-Type", "application/json").body(value.to_string())
    }

    /// All but the body, as it goes out.
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.line);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        (head + "\r\n").into_bytes()
    }

    /// Sends the head alone.
    pub fn begin(&self) -> Pending {
        Pending::send(self.port, &self.head())
    }

    /// Sends all of it and reads the answer.
    #[track_caller]
    pub fn send(&self) -> Answer {
        Pending::send(self.port, &[&self.head()[..], &self.body].concat()).answer()
    }

    /// The answer of an agent that may be coming up or going down; `None` where nobody gives one, or not whole. A
    /// forwarder takes connections that nobody answers: they are waited on for two seconds.
    pub fn try_send(&self) -> Option<Answer> {
        const PATIENCE: Duration = Duration::from_secs(2);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(&[&self.head()[..], &self.body].concat()).ok()?;
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        // a reset after the answer is the other side's right
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..count]);
        }
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let answer = Answer::parse(&bytes);
        let length: usize = answer.header("content-length")?.parse().ok()?;
        (bytes.len() == head + 4 + length).then_some(answer)
    }
}

impl Pending {
    /// Reads one answer with a length and not a byte beyond it: the connection can be used again.
    #[track_caller]
    pub fn one_answer(&mut self) -> Answer {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {bytes:?}"));
            bytes.push(byte[0]);
        }
        let length = Answer::parse(&bytes).header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        bytes.extend(body);
        Answer::parse(&bytes)
    }
}

impl Answer {
    /// Asserts the status, the code in the body, and what every answer bears.
    #[track_caller]
    pub fn is_error(&self, status: u16, code: &str) -> &Value {
        assert_eq!((self.status, self.json["error"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        self.is_stamped();
        &self.json
    }

    /// Asserts what every answer bears.
    #[track_caller]
    pub fn is_stamped(&self) {
        assert_eq!(self.header("podlink-protocol"), Some("1"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        assert!(self.header("x-request-id").is_some_and(|id| !id.is_empty()), "{self:?}");
    }
}
