//! A real agent, with a folder, a token and a port of its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use podlink::protocol::MEDIA_MULTIPLEXED;
use serde_json::Value;

use super::{
    Port,
    http::{Answer, Http, Pending, request},
    schema,
    stream::Stream,
    wait_for,
};

/// A running `podlink agent serve`; killed when dropped.
#[must_use]
#[derive(Debug)]
pub struct Agent {
    child: Mutex<Child>,
    pid: u32,
    folder: tempfile::TempDir,
    token: String,
    port: Port,
}

impl Agent {
    /// One with a token and no gates, which answers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// One with these flags besides.
    pub fn with(flags: &[&str]) -> Self {
        Self::launch(flags, &[])
    }

    /// One with these variables in its environment.
    pub fn with_env(env: &[(&str, &str)]) -> Self {
        Self::launch(&[], env)
    }

    /// One with both.
    pub fn launch(flags: &[&str], env: &[(&str, &str)]) -> Self {
        let agent = Self::launch_with_token(flags, env, true);
        wait_for("the agent to be ready", Duration::from_secs(20), || {
            agent.try_get("/health").is_some_and(|a| a.status == 200)
        });
        agent
    }

    /// One that need not become ready; waits until it answers at all.
    pub fn launch_with_token(flags: &[&str], env: &[(&str, &str)], with_token: bool) -> Self {
        Self::launch_under(&[], flags, env, with_token)
    }

    /// One that may not set the clock: for every test that asks an agent to, because here the clock is this machine's own.
    pub fn without_the_clock() -> Self {
        let no_clock = ["setpriv", "--inh-caps=-sys_time", "--bounding-set=-sys_time"];
        let under = if rustix::process::geteuid().is_root() { &no_clock[..] } else { &[] };
        let agent = Self::launch_under(under, &[], &[], true);
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid)).unwrap();
        let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        assert_eq!(u64::from_str_radix(rights.trim(), 16).unwrap() >> 25 & 1, 0, "it could set the clock: {status}");
        agent
    }

    /// One that another program becomes, which is given its command line.
    fn launch_under(under: &[&str], flags: &[&str], env: &[(&str, &str)], with_token: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = podlink::token::Token::generate().unwrap().expose().to_string();
        let port = Port::reserve();
        let agent_token = folder.path().join("token");
        if with_token {
            write_private(&agent_token, &token);
        }
        let whole = [under, &[env!("CARGO_BIN_EXE_podlink")]].concat();
        let mut command = Command::new(whole[0]);
        command.args(&whole[1..]);
        command.args(["agent", "serve", "--listen", &format!("127.0.0.1:{}", port.number()), "--token-file"]);
        command.arg(&agent_token).args(flags);
        if !flags.contains(&"--log-file") {
            command.arg("--log-file").arg(folder.path().join("log"));
        }
        command.env("PODLINK_LOG", "trace,hyper=trace").envs(env.iter().copied());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let agent = Self { pid: child.id(), child: Mutex::new(child), folder, token, port };
        wait_for("the agent to answer", Duration::from_secs(20), || {
            assert!(agent.lives(), "the agent ended: {}", agent.log());
            agent.try_get("/health").is_some()
        });
        agent
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// All that it has logged, at the highest level.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join("log")).unwrap_or_default()).into_owned()
    }

    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    pub fn get(&self, path: &str) -> Answer {
        as_documented(path, self.call("GET", path, &[], b"").answer())
    }

    pub fn delete(&self, path: &str) -> Answer {
        as_documented(path, self.call("DELETE", path, &[], b"").answer())
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body, &[])
    }

    pub fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        as_documented(path, self.begin_post(path, body, headers).answer())
    }

    /// Sends the request and does not wait for the answer.
    pub fn begin_post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Pending {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        self.call("POST", path, &all, body.to_string().as_bytes())
    }

    /// `POST /exec` whose answer is to come in this form.
    pub fn begin_stream(&self, accept: &str, body: &Value, headers: &[(&str, &str)]) -> Pending {
        let mut all = vec![("accept", accept)];
        all.extend(headers);
        self.begin_post("/exec", body, &all)
    }

    /// `POST /exec`, streamed in frames.
    #[track_caller]
    pub fn stream(&self, body: &Value) -> Stream {
        Stream::of(self.begin_stream(MEDIA_MULTIPLEXED, body, &[]))
    }

    /// `GET /processes/{id}/output` with this query.
    #[track_caller]
    pub fn output(&self, process_id: &str, query: &str) -> Stream {
        let path = format!("/processes/{process_id}/output?{query}");
        let mut stream = Stream::of(self.call("GET", &path, &[], b""));
        let offset = query.split('&').find_map(|part| part.strip_prefix("offset="));
        stream.offset = match offset {
            Some(offset) => offset.parse().unwrap(),
            None => self.info(process_id)["output_from"].as_u64().unwrap(),
        };
        stream
    }

    /// A detached call, once its program runs: the agent's name for it.
    #[track_caller]
    pub fn spawn(&self, body: &Value) -> String {
        let mut body = body.clone();
        body["detach"] = true.into();
        let answer = self.post("/exec", &body);
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json["process_id"].as_str().unwrap().to_owned()
    }

    /// `GET /processes/{id}`.
    #[track_caller]
    pub fn info(&self, process_id: &str) -> Value {
        let answer = self.get(&format!("/processes/{process_id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }

    /// Waits for the end of a call, and says what is known of it then.
    #[track_caller]
    pub fn ended(&self, process_id: &str) -> Value {
        let mut info = Value::Null;
        wait_for("the call to end", Duration::from_secs(30), || {
            info = self.info(process_id);
            info["state"] == "exited"
        });
        info
    }

    /// Bytes to the stdin of a call.
    pub fn write_stdin(&self, process_id: &str, query: &str, bytes: &[u8]) -> Answer {
        let path = format!("/processes/{process_id}/stdin{query}");
        as_documented(&path, self.call("POST", &path, &[], bytes).answer())
    }

    /// An authorized request.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Pending {
        let bearer = self.bearer();
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        self.raw(&request(method, path, &all, body))
    }

    /// A request without a token, to be built up.
    pub fn http(&self, method: &str, target: &str) -> Http {
        Http::new(self.port(), method, target)
    }

    /// A request with the token, to be built up.
    pub fn authorized(&self, method: &str, target: &str) -> Http {
        self.http(method, target).bearer(&self.token)
    }

    /// These very bytes.
    pub fn raw(&self, bytes: &[u8]) -> Pending {
        Pending::send(self.port(), bytes)
    }

    fn try_get(&self, path: &str) -> Option<Answer> {
        std::net::TcpStream::connect(("127.0.0.1", self.port())).ok()?;
        Some(self.get(path))
    }

    pub fn lives(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// SIGTERM; does not wait.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }

    /// SIGTERM, and waits for a good end.
    pub fn stop(&self) {
        self.terminate();
        wait_for("the agent to end", Duration::from_secs(20), || !self.lives());
        let status = self.child.lock().unwrap().wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Files and sockets that it holds open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap().count()
    }

    /// Established connections to its port.
    pub fn connections(&self) -> usize {
        let local = format!("0100007F:{:04X}", self.port());
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|fields| fields.get(1) == Some(&local.as_str()) && fields.get(3) == Some(&"01"))
            .count()
    }

    /// The most memory that it has ever had.
    pub fn peak_memory_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    /// The memory that it has now.
    pub fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(child.kill());
        drop(child.wait());
    }
}

/// The answer, having held it against docs/openapi.yaml.
#[track_caller]
pub fn as_documented(path: &str, answer: Answer) -> Answer {
    let name = match (path, answer.status) {
        (_, 204) => return answer,
        ("/health", 200) => "Health",
        ("/health", 503) if answer.json.get("error").is_none() => "Health",
        ("/whoami", 200) => "Whoami",
        ("/exec", 200) => "ExecResult",
        ("/system/processes", 200) => "SystemProcesses",
        ("/system/sockets", 200) => "SystemSockets",
        ("/system/metrics", 200) => "Metrics",
        ("/system/time", 200) if answer.json.get("step_ns").is_some() => "TimeSet",
        ("/system/time", 200) => "GuestTime",
        (path, 200) if path.starts_with("/system/info") => "SystemInfo",
        ("/exec", 202) => "Started",
        ("/agent/restart", 202) => "RestartAccepted",
        (_, 200) => match path.split('?').next().unwrap_or_default().split('/').collect::<Vec<_>>()[..] {
            ["", "processes"] => "ProcessList",
            ["", "processes", _] if answer.json.get("survivors").is_some() => "ProcessEnded",
            ["", "processes", _] => "ProcessInfo",
            ["", "processes", _, "stdin"] => "StdinAccepted",
            ["", "processes", _, "signal"] => "Signalled",
            ["", "sessions"] => "SessionList",
            ["", "sessions", _] => "SessionEnded",
            _ => panic!("{path} answered {answer:?}, of which nothing is documented"),
        },
        _ => "ErrorBody",
    };
    schema::check(name, &answer.json);
    assert_eq!(answer.header("podlink-protocol"), Some("1"), "{answer:?}");
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    answer
}

/// Writes a file with mode 0600.
pub fn write_private(path: &Path, content: &str) {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}
