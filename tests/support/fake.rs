//! Hand-written peers: agents that break and programs that are none, which cannot be had from the real agent.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use podlink::{
    host::{AgentClient, ClientSettings},
    token::{Challenge, TOKEN_FILE, Token, replace_private},
};

use super::Port;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What a fake does with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Sends these bytes and keeps the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes and closes.
    Last(Vec<u8>),
    /// Closes without a word.
    Close,
    /// Keeps the connection and says nothing.
    Silence,
    /// Closes, and from then on refuses connections: the program is gone.
    Die,
}

/// Builds an answer with a body.
pub fn http(status: u16, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Fake\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The head of a streamed answer, and frames; each a stream's number and its bytes.
pub fn frames(process_id: &str, frames: &[(u8, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (stream, bytes) in frames {
        let [a, b, c, d] = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        body.extend([*stream, 0, 0, 0, a, b, c, d]);
        body.extend_from_slice(bytes);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nX-Process-Id: {process_id}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// An agent's health.
pub fn health(agent_id: &str, stage: &str) -> String {
    let ready = stage == "ready";
    let waiting = if stage == "installing" { r#","waiting_for":["C:\\podlink\\state\\install.done"]"# } else { "" };
    format!(
        r#"{{"ok":{ready},"version":"0.1.0","protocol":1,"started_at":"2026-11-29T14:00:00Z","uptime_ms":5,"os":"windows","arch":"x86_64","agent_id":"{agent_id}","stage":"{stage}"{waiting}}}"#
    )
}

/// The right answer of an agent with this token to a request for `/health`.
pub fn proved(request: &Request, token: &Token, agent_id: &str, stage: &str) -> Vec<u8> {
    let proof = request
        .header("podlink-challenge")
        .and_then(|challenge| Challenge::parse(challenge.as_bytes()))
        .map(|challenge| format!("Podlink-Proof: {}\r\n", token.prove(&challenge).to_hex()))
        .unwrap_or_default();
    http(if stage == "ready" { 200 } else { 503 }, &proof, &health(agent_id, stage))
}

/// The answer of `/whoami`.
pub fn whoami() -> Vec<u8> {
    let body = r#"{"user":"Docker","session_id":1,"interactive":true,"elevated":true,"agent_id":"a","version":"0.1.0","limits":{}}"#;
    http(200, "", body)
}

/// A peer on a port of its own; it records every byte that it is sent.
#[derive(Debug)]
pub struct Fake {
    port: Port,
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    bytes: Mutex<Vec<u8>>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<TcpStream>>,
    gone: AtomicBool,
}

impl Fake {
    /// Starts one whose answers are `reply`'s, which is told the number of the connection too.
    pub fn start(reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on(Port::reserve(), reply)
    }

    /// On this port.
    pub fn start_on(port: Port, reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(port, Ipv4Addr::LOCALHOST.into(), reply)
    }

    /// On this port of this address.
    pub fn start_at(port: Port, ip: IpAddr, reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let address = SocketAddr::new(ip, port.number());
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State::default());
        let (shared, reply) = (state.clone(), Arc::new(reply));
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            while !shared.gone.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                shared.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let (shared, reply, number) = (shared.clone(), reply.clone(), count);
                count += 1;
                std::thread::spawn(move || serve(stream, &shared, &*reply, number));
            }
        });
        Self { port, address, state, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Everything it was sent, as text.
    pub fn recorded(&self) -> String {
        String::from_utf8_lossy(&self.state.bytes.lock().unwrap()).into_owned()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// The requests for a method and a path.
    pub fn requests_for(&self, method: &str, path: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.method == method && request.path.starts_with(path));
        requests
    }

    pub fn connections(&self) -> usize {
        self.state.connections.lock().unwrap().len()
    }

    /// Asserts that neither the token nor any authorization came.
    #[track_caller]
    pub fn never_saw(&self, token: &Token) {
        let recorded = self.recorded().to_lowercase();
        assert!(!recorded.contains(token.expose().as_str()), "the token came: {recorded}");
        assert!(!recorded.contains("authorization"), "an authorization came: {recorded}");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::SeqCst);
        for stream in self.state.connections.lock().unwrap().iter() {
            drop(stream.shutdown(Shutdown::Both));
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut stream: TcpStream, state: &State, reply: &(impl Fn(&Request, usize) -> Reply + ?Sized), number: usize) {
    let mut pending = Vec::new();
    loop {
        let request = loop {
            if let Some((request, used)) = parse(&pending) {
                pending.drain(..used);
                break request;
            }
            let mut chunk = [0; 8192];
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    state.bytes.lock().unwrap().extend_from_slice(&chunk[..count]);
                    pending.extend_from_slice(&chunk[..count]);
                }
            }
        };
        state.requests.lock().unwrap().push(request.clone());
        match reply(&request, number) {
            Reply::Bytes(bytes) => drop(stream.write_all(&bytes)),
            Reply::Last(bytes) => {
                drop(stream.write_all(&bytes));
                return drop(stream.shutdown(Shutdown::Both));
            }
            Reply::Close => return drop(stream.shutdown(Shutdown::Both)),
            Reply::Silence => {}
            Reply::Die => {
                state.gone.store(true, Ordering::SeqCst);
                // closed only once the listener is: the caller meets a refusal, never a last accept
                std::thread::sleep(Duration::from_millis(20));
                return drop(stream.shutdown(Shutdown::Both));
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Request, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut words = head.split(' ');
    let mut request = Request {
        method: words.next()?.to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        head: head.clone(),
        body: Vec::new(),
    };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = bytes.get(end..end + length)?.to_vec();
    Some((request, end + length))
}

/// Writes a pod into `home` that reaches for its agent on `port`, and returns its token.
pub fn write_pod(home: &Path, port: u16, more: &str) -> Token {
    let dir = home.join("fake");
    podlink::token::ensure_private_dir(&dir).unwrap();
    let settings = format!("engine: local\nguest: linux\nports: {{agent: {port}, rdp: 1, web: 2}}\n{more}");
    replace_private(&dir.join("pod.yaml"), settings.as_bytes()).unwrap();
    let token = Token::generate().unwrap();
    replace_private(&dir.join(TOKEN_FILE), token.expose().as_bytes()).unwrap();
    token
}

/// Deadlines that suit a test.
pub fn settings() -> ClientSettings {
    ClientSettings {
        connect_deadline: Duration::from_secs(2),
        proof_deadline: Duration::from_millis(400),
        health_deadline: Duration::from_millis(300),
        call_deadline: Duration::from_millis(600),
        cancel_deadline: Duration::from_millis(600),
        queue_wait: Duration::from_millis(300),
        kill_margin: Duration::from_millis(300),
        orphan_life: Duration::from_millis(1500),
        ..ClientSettings::DEFAULT
    }
}

/// A client of the peer with this token.
pub fn client(fake: &Fake, token: &Token) -> AgentClient {
    AgentClient::new(fake.address(), token.clone(), settings()).unwrap()
}
