//! What a call costs: `/health` of an idle and of a busy agent, and the shortest `POST /exec`.
//!
//! `cargo bench --bench exec` starts an agent of its own and prints; nothing is asserted. Ratios matter more than times:
//! both sides of each run in one process tree on one machine.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Slow calls that run beside `/health`.
const SLOW_CALLS: usize = 50;
/// Measurements of a row: enough for a p99 that does not hang on one of them.
const HEALTH_CALLS: usize = 2_000;
const EXEC_CALLS: usize = 300;
/// For everything that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent that is told to end when dropped, so that it ends its calls.
struct Agent {
    child: Child,
    port: u16,
    token: String,
    _folder: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Agent {
    #[expect(clippy::disallowed_methods, reason = "the bench starts the real executable")]
    fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let token_file = folder.path().join("agent_token.txt");
        let (token, _) = podlink::token::load_or_create(&token_file).map_err(io::Error::other)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(env!("CARGO_BIN_EXE_podlink"))
            .args(["agent", "serve", "--exec-slots", "64", "--listen", &format!("127.0.0.1:{port}"), "--token-file"])
            .arg(&token_file)
            .arg("--log-file")
            .arg(folder.path().join("log"))
            .stdin(Stdio::null())
            .spawn()?;
        let agent = Self { child, port, token: token.expose().to_string(), _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while !agent.connect().and_then(|mut connection| connection.health()).is_ok_and(|status| status == 200) {
            if Instant::now() > deadline {
                return Err(io::Error::other("the agent did not become ready"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(agent)
    }

    fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { reader: BufReader::new(stream), token: self.token.clone() })
    }
}

/// One kept-alive connection.
struct Connection {
    reader: BufReader<TcpStream>,
    token: String,
}

impl Connection {
    fn health(&mut self) -> io::Result<u16> {
        self.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        self.answer()
    }

    fn send_exec(&mut self, body: &str) -> io::Result<()> {
        let (token, len) = (&self.token, body.len());
        self.send(&format!(
            "POST /exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {len}\r\n\r\n{body}"
        ))
    }

    fn exec(&mut self, body: &str) -> io::Result<u16> {
        self.send_exec(body)?;
        self.answer()
    }

    fn send(&mut self, request: &str) -> io::Result<()> {
        self.reader.get_mut().write_all(request.as_bytes())
    }

    /// Reads a whole answer and returns its status.
    fn answer(&mut self) -> io::Result<u16> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "not an answer");
        let (mut status, mut len) = (None, 0);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if status.is_none() {
                status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
            } else if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().map_err(|_| broken())?;
            } else if line.is_empty() {
                break;
            }
        }
        self.reader.read_exact(&mut vec![0; len])?;
        status.ok_or_else(broken)
    }
}

/// Runs `once` so often and prints the row.
fn row(name: &str, times: usize, mut once: impl FnMut() -> io::Result<u16>) -> io::Result<()> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        let status = once()?;
        took.push(begun.elapsed());
        if status != 200 {
            return Err(io::Error::other(format!("{name}: status {status}")));
        }
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)].as_secs_f64() * 1e3;
    writeln!(io::stdout(), "{name:<38} {times:>6} {:>9.3} {:>9.3} {:>9.3}", at(50), at(99), at(100))
}

fn main() -> io::Result<()> {
    let agent = Agent::start()?;
    let mut connection = agent.connect()?;
    writeln!(io::stdout(), "{:<38} {:>6} {:>9} {:>9} {:>9}", "", "calls", "p50 ms", "p99 ms", "worst ms")?;
    row("GET /health, idle", HEALTH_CALLS, || connection.health())?;
    row("GET /health, idle, new connections", HEALTH_CALLS, || agent.connect()?.health())?;
    row("POST /exec of true", EXEC_CALLS, || connection.exec(r#"{"argv":["true"]}"#))?;
    // echo ok, by the shell
    row("POST /exec of a script", EXEC_CALLS, || connection.exec(r#"{"script":"ZWNobyBvaw=="}"#))?;

    let slow: Vec<Connection> = (0..SLOW_CALLS)
        .map(|_| {
            let mut connection = agent.connect()?;
            connection.send_exec(r#"{"argv":["sleep","300"],"timeout_sec":300}"#)?;
            Ok(connection)
        })
        .collect::<io::Result<_>>()?;
    row(&format!("GET /health, {SLOW_CALLS} slow calls"), HEALTH_CALLS, || connection.health())?;
    row(&format!("POST /exec of true, {SLOW_CALLS} slow calls"), EXEC_CALLS, || {
        connection.exec(r#"{"argv":["true"]}"#)
    })?;
    drop(slow); // a call whose caller has gone is killed
    Ok(())
}
