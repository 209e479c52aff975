//! The Windows build of podlink under Wine: programs in a world of their own, and an agent among them.
//!
//! ```ignore
//! let Some(wine) = Wine::open() else { return };               // a prefix of its own; ended and removed on drop
//! wine.run("cmd.exe", &["/c", "exit 3"]).exits(3);
//! let run = wine.run(&wine.podlink(), &["--version"]);
//!
//! let Some(agent) = WineAgent::start() else { return };         // `podlink.exe agent serve`, which answers
//! agent.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3);
//! agent.post("/exec", &json!({"argv": ["cmd", "/c", "exit 3"]}));
//! ```

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use podlink::token::{TOKEN_FILE, Token, ensure_private_dir, replace_private};
use serde_json::Value;

use super::{Answer, Cli, Http, Port, agent::as_documented, cli::Run, wait_for};

/// A program that is started may be waited for this long; a first one in a prefix takes two or three seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a world is made with, besides its own folder.
#[derive(Debug, Clone, Default)]
pub struct WineSetup {
    visible: Vec<PathBuf>,
    env: Vec<(String, String)>,
}

impl WineSetup {
    pub fn new() -> Self {
        Self::default()
    }

    /// This folder of the machine too, to be read, under the same path (drive `Z:`).
    pub fn see(mut self, folder: &Path) -> Self {
        self.visible.push(folder.to_owned());
        self
    }

    /// This variable in the environment of every program. `WINEPATH` is put before Windows' own `PATH`.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The world; `None`, having said so, where there is no Wine or no `podlink.exe`.
    pub fn open(self) -> Option<Wine> {
        if std::env::var_os("PODLINK_TEST_WINE").is_none() {
            println!("skipped: needs Wine (scripts/test wine)");
            return None;
        }
        Some(Wine::make(self))
    }
}

/// A Wine prefix and the processes in it. Dropping it ends them all.
#[must_use]
#[derive(Debug)]
pub struct Wine {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
    /// The world's first process, which ends with its stdin, and with which all others end.
    keeper: Child,
    stdin: Option<ChildStdin>,
    /// The process, as this machine counts, whose view of files and processes the world's is.
    first: u32,
}

impl Wine {
    /// A world with nothing special.
    pub fn open() -> Option<Self> {
        WineSetup::new().open()
    }

    fn make(setup: WineSetup) -> Self {
        let tests = out().join("tests");
        std::fs::create_dir_all(&tests).unwrap();
        let folder = tempfile::Builder::new().prefix("t").tempdir_in(tests).unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        copy_prefix(&out().join("prefix"), &folder.path().join("prefix"));
        let exe = exe();
        assert!(exe.exists(), "there is no {}: scripts/build-windows-guest --dev makes it", exe.display());
        for (from, name) in [(exe, "podlink.exe"), (out().join("probe.exe"), "probe.exe")] {
            let own = folder.path().join(name);
            std::fs::hard_link(&from, &own).or_else(|_| std::fs::copy(&from, &own).map(drop)).unwrap();
        }

        let mut keeper = Command::new(scripts().join("world"))
            .arg(folder.path())
            .args(["sh", "-c", "echo here; cat; exit"])
            .env("PODLINK_TEST_WINE_VISIBLE", std::env::join_paths(&setup.visible).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n", "the world could not be made");
        let info = std::fs::read_to_string(folder.path().join("world.json")).unwrap();
        let info: Value = serde_json::from_str(&info).unwrap();
        let first = info["child-pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap();
        let stdin = keeper.stdin.take();
        Self { folder, env: setup.env, keeper, stdin, first }
    }

    /// The world's own folder, which has the same path inside; removed with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Drive `C:`.
    pub fn drive_c(&self) -> PathBuf {
        self.folder().join("prefix/drive_c")
    }

    /// `podlink.exe` as the world's folder has it, to be run or copied.
    pub fn podlink(&self) -> String {
        windows_path(&self.folder().join("podlink.exe"))
    }

    /// `probe.exe`, the tests' own program, which does what `cmd` cannot: see `tests/wine/probe.c`.
    pub fn probe(&self) -> String {
        windows_path(&self.folder().join("probe.exe"))
    }

    /// A file in the world's folder: as this machine writes it, and as Windows does.
    pub fn file(&self, name: &str) -> (PathBuf, String) {
        let path = self.folder().join(name);
        let windows = windows_path(&path);
        (path, windows)
    }

    /// A program with its arguments, started in the world's folder. `exe` is a name that Windows finds, or a path of
    /// Windows'. Only the low byte of an exit code arrives here.
    pub fn command(&self, exe: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let first = self.first.to_string();
        command.args(["--target", &first, "--mount", "--pid"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "env", "-C"]).arg(self.folder());
        command.args(["wine", exe]).args(args);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
        command.env("WINEPREFIX", self.folder().join("prefix")).env("HOME", self.folder().join("tmp"));
        command.env("WINEDEBUG", std::env::var("WINEDEBUG").unwrap_or_else(|_| "-all".to_owned()));
        command.env("XDG_RUNTIME_DIR", "/run").envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Runs a program to its end, with nothing on its stdin.
    #[track_caller]
    pub fn run(&self, exe: &str, args: &[&str]) -> Run {
        Self::finish(self.command(exe, args))
    }

    /// Runs what [`command`](Self::command) has made to its end.
    #[track_caller]
    pub fn finish(mut command: Command) -> Run {
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // a service that Wine starts along the way may keep the pipes: what the program wrote is there when it ends
        let streams = [collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap())];
        let mut status = None;
        wait_for(&format!("the end of {command:?}"), PATIENCE, || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let [stdout, stderr] = streams.map(Collected::text);
        Run { code: status.unwrap().code(), stdout, stderr, took: begun.elapsed() }
    }

    /// The world's processes: their numbers as this machine counts, and their command lines.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let world = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(ours) = world(&self.first.to_string()) else { return vec![] };
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Ok(pid) = name.parse::<u32>()
                && world(&name).as_ref() == Some(&ours)
            {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()));
            }
        }
        found
    }

    /// The numbers of those whose command line holds this text, as this machine counts.
    pub fn pids_of(&self, text: &str) -> Vec<u32> {
        self.processes().into_iter().filter(|(_, line)| line.contains(text)).map(|(pid, _)| pid).collect()
    }

    /// What the registry holds at a key, as `reg query` prints it; `None` where there is no such key or value.
    pub fn registry(&self, key: &str, value: &str) -> Option<String> {
        let run = self.run("reg.exe", &["query", key, "/v", value]);
        (run.code == Some(0)).then_some(run.stdout)
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        drop(self.stdin.take()); // its first process reads the end, and ends
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.keeper.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() >= deadline {
                super::processes::kill(&[self.first]);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.keeper.wait());
    }
}

/// A stream that is read to its end, or for a moment after its writer's.
struct Collected(std::sync::mpsc::Receiver<Vec<u8>>);

fn collect(mut stream: impl std::io::Read + Send + 'static) -> Collected {
    let (sender, receiver) = std::sync::mpsc::channel();
    drop(std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            if sender.send(chunk[..count].to_vec()).is_err() {
                break;
            }
        }
    }));
    Collected(receiver)
}

impl Collected {
    fn text(self) -> String {
        /// What a program wrote before its end is in the pipe by then: this is for our own thread to fetch it.
        const AFTER: Duration = Duration::from_millis(500);
        let mut bytes = Vec::new();
        while let Ok(chunk) = self.0.recv_timeout(AFTER) {
            bytes.extend(chunk);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// `podlink.exe agent serve` under Wine, and a pod of the host's that reaches for it; ended when dropped.
#[must_use]
#[derive(Debug)]
pub struct WineAgent {
    wine: Wine,
    child: Child,
    token: Token,
    port: Port,
    flags: Vec<String>,
}

impl WineAgent {
    /// One that is ready.
    pub fn start() -> Option<Self> {
        Self::with(WineSetup::new(), &[])
    }

    /// One that is ready, in a world that is set up so, with these flags besides.
    pub fn with(setup: WineSetup, flags: &[&str]) -> Option<Self> {
        let agent = Self::launch(setup.open()?, flags);
        agent.wait_until_ready();
        Some(agent)
    }

    /// One that need not become ready; waits until it answers at all.
    pub fn launch(wine: Wine, flags: &[&str]) -> Self {
        let (token, port) = (Token::generate().unwrap(), Port::reserve());
        replace_private(&wine.folder().join("token"), token.expose().as_bytes()).unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = Self::serve(&wine, port.number(), &flags);
        let mut agent = Self { wine, child, token, port, flags };
        agent.write_pod();
        agent.wait_until_it_answers();
        agent
    }

    fn serve(wine: &Wine, port: u16, flags: &[String]) -> Child {
        let listen = format!("127.0.0.1:{port}");
        let [token_file, log] = ["token", "log"].map(|name| windows_path(&wine.folder().join(name)));
        let mut args = vec!["agent", "serve", "--listen", &listen, "--token-file", &token_file, "--log-file", &log];
        args.extend(flags.iter().map(String::as_str));
        let said = std::fs::File::create(wine.folder().join("agent.stderr")).unwrap();
        let mut command = wine.command(&wine.podlink(), &args);
        command.env("PODLINK_LOG", "trace,hyper=trace");
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    fn wait_until_it_answers(&mut self) {
        wait_for("the agent to answer", PATIENCE, || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the agent ended with {ended:?}: {}", self.log());
            self.listens()
        });
    }

    /// Another agent in the place of one that has ended; waits until it is ready.
    pub fn start_again(&mut self) {
        wait_for("the end of the first", PATIENCE, || self.child.try_wait().unwrap().is_some());
        self.child = Self::serve(&self.wine, self.port(), &self.flags);
        self.wait_until_it_answers();
        self.wait_until_ready();
    }

    /// A pod of the local engine: no container is asked for, and all else is as with a real one.
    fn write_pod(&self) {
        let dir = self.home().join("wine");
        ensure_private_dir(&dir).unwrap();
        let port = self.port();
        let settings = format!("engine: local\nguest: windows\nports: {{agent: {port}, rdp: 1, web: 2}}\n");
        replace_private(&dir.join("pod.yaml"), settings.as_bytes()).unwrap();
        replace_private(&dir.join(TOKEN_FILE), self.token.expose().as_bytes()).unwrap();
    }

    pub fn wait_until_ready(&self) {
        wait_for("the agent to be ready", PATIENCE, || self.get("/health").status == 200);
    }

    /// `podlink pod …` of this machine, for the pod whose agent this is.
    pub fn pod(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod"], args].concat()).home(&self.home()).env("PODLINK_POD", "wine")
    }

    /// `PODLINK_HOME` of the pod, which is named `wine`.
    pub fn home(&self) -> PathBuf {
        self.wine.folder().join("home")
    }

    pub const fn wine(&self) -> &Wine {
        &self.wine
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// A request with the token, to be built up.
    pub fn authorized(&self, method: &str, target: &str) -> Http {
        Http::new(self.port(), method, target).bearer(&self.token.expose())
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        as_documented(path, self.authorized("GET", path).send())
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Answer {
        as_documented(path, self.authorized("DELETE", path).send())
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        as_documented(path, self.authorized("POST", path).json(body).send())
    }

    /// What it has logged, at the highest level, and what it said on its streams.
    pub fn log(&self) -> String {
        ["log", "agent.stderr"]
            .map(|name| std::fs::read(self.wine.folder().join(name)).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat()
    }

    /// The agent's own process, as this machine counts.
    pub fn pid(&self) -> u32 {
        let agents = self.wine.pids_of("agent serve");
        *agents.first().unwrap_or_else(|| panic!("no agent among {:?}", self.wine.processes()))
    }

    /// The agent's own process, as Windows counts.
    pub fn windows_pid(&self) -> String {
        let log = self.log();
        let (_, after) = log.rsplit_once("agent started").unwrap();
        let (_, pid) = after.split_once(" pid=").unwrap();
        pid.chars().take_while(char::is_ascii_digit).collect()
    }

    /// SIGKILL to the agent alone.
    pub fn kill(&mut self) {
        super::processes::kill(&[self.pid()]);
        wait_for("the agent to end", PATIENCE, || self.child.try_wait().unwrap().is_some());
    }

    pub fn listens(&self) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.port())).is_ok()
    }
}

impl Drop for WineAgent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", self.log());
        }
        drop(self.child.kill()); // our side of it; the other ends with its world
        drop(self.child.wait());
    }
}

/// A path of this machine as programs under Wine write it.
pub fn windows_path(path: &Path) -> String {
    format!("Z:{}", path.to_str().unwrap().replace('/', "\\"))
}

/// Copies a prefix. Windows' own files, of which there are 800 MB and which nobody writes to, get a second name only.
fn copy_prefix(from: &Path, to: &Path) {
    let copy = |flags: &str, from: &Path, to: &Path| {
        let output = Command::new("cp").arg(flags).args([from, to]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::create_dir_all(to.join("drive_c/windows")).unwrap();
    for (folder, flags) in [("", "-a"), ("drive_c", "-a"), ("drive_c/windows", "-al")] {
        for entry in std::fs::read_dir(from.join(folder)).unwrap().flatten() {
            let name = entry.file_name();
            let is_next = (folder.is_empty() && name == "drive_c") || (folder == "drive_c" && name == "windows");
            if !is_next {
                copy(flags, &entry.path(), &to.join(folder).join(name));
            }
        }
    }
}

/// The executable under test: the one that is shipped where `PODLINK_TEST_WINE` names it, else a quick build.
fn exe() -> PathBuf {
    match std::env::var_os("PODLINK_TEST_WINE") {
        Some(path) if Path::new(&path).is_absolute() => path.into(),
        _ => top().join("target/windows-guest/dev/podlink.exe"),
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scripts() -> PathBuf {
    top().join("tests/wine")
}

fn out() -> PathBuf {
    top().join("target/wine")
}
