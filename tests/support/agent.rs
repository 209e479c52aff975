//! A real agent, with a folder, a token and a port of its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use serde_json::Value;

use super::{
    Port,
    http::{Answer, Http, Pending, request},
    schema, wait_for,
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
        let folder = tempfile::tempdir().unwrap();
        let token = podlink::token::Token::generate().unwrap().expose().to_string();
        let port = Port::reserve();
        let agent_token = folder.path().join("token");
        if with_token {
            write_private(&agent_token, &token);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_podlink"));
        command.args(["agent", "serve", "--listen", &format!("127.0.0.1:{}", port.number()), "--token-file"]);
        command.arg(&agent_token).arg("--log-file").arg(folder.path().join("log")).args(flags);
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
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
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
