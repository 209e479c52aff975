//! A PowerShell behind an agent, on either system: what the one list of `list.rs` is run against.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{
    agent::as_documented,
    http::{Pending, request},
    processes,
};

/// Where and how scripts are run.
#[derive(Debug)]
pub(crate) struct Shell<'a> {
    /// The agent's port.
    pub(crate) port: u16,
    /// The agent's token.
    pub(crate) token: String,
    /// The shell as it stands in the request; also its program's name.
    pub(crate) name: &'static str,
    /// Whether the agent is the one for Windows.
    pub(crate) windows: bool,
    /// A folder that both sides can reach.
    pub(crate) folder: PathBuf,
    /// That folder, as the guest names it.
    pub(crate) guest_folder: String,
    /// The living processes whose command line holds a text.
    pub(crate) pids_of: PidsOf<'a>,
}

/// A look at the processes of the guest, from outside of the agent.
pub(crate) struct PidsOf<'a>(pub(crate) Box<Look<'a>>);

type Look<'a> = dyn Fn(&str) -> Vec<u32> + Sync + 'a;

impl std::fmt::Debug for PidsOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PidsOf")
    }
}

/// What came of a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) rc: i64,
    /// With one kind of line ends.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Seconds that a script may take: on a machine whose every core is busy a PowerShell starts slowly.
const PATIENCE: u64 = 50;

impl Shell<'_> {
    /// Sends a call without waiting for its answer.
    pub(crate) fn begin(&self, body: &Value) -> Pending {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        Pending::send(self.port, &request("POST", "/exec", &headers, body.to_string().as_bytes()))
    }

    /// The whole answer to a call.
    #[track_caller]
    pub(crate) fn call(&self, body: &Value) -> Value {
        let answer = as_documented("/exec", self.begin(body).answer());
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json
    }

    /// The body of a call that runs this script.
    pub(crate) fn body(&self, script: &str) -> Value {
        json!({ "script": BASE64_STANDARD.encode(script), "shell": self.name, "timeout_sec": PATIENCE })
    }

    /// Runs a script.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Ran {
        Ran::of(&self.call(&self.body(script)))
    }

    /// Runs a script as everybody does who has no agent: by `-File`, in the same guest.
    ///
    /// # Panics
    /// When it did not run.
    #[track_caller]
    pub(crate) fn run_plainly(&self, script: &str) -> Ran {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("plain-{}.ps1", COUNT.fetch_add(1, Ordering::Relaxed));
        std::fs::write(self.folder.join(&name), [b"\xef\xbb\xbf", script.as_bytes()].concat()).unwrap();
        let file = self.guest_path(&name);
        let mut argv =
            vec![self.name, "-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"];
        argv.push(&file);
        let ran = Ran::of(&self.call(&json!({ "argv": argv, "env": { "NO_COLOR": "1" }, "timeout_sec": PATIENCE })));
        ran.with_the_script_named("SCRIPT", &file, &name)
    }

    /// A file in the folder, as the guest names it.
    pub(crate) fn guest_path(&self, name: &str) -> String {
        format!("{}{}{name}", self.guest_folder, if self.windows { '\\' } else { '/' })
    }

    /// An exit code as it arrives: Unix has eight bits for it.
    pub(crate) fn code(&self, code: u32) -> i64 {
        if self.windows { code.into() } else { (code & 0xff).into() }
    }

    /// A native command with this exit code.
    pub(crate) fn native(&self, code: i32) -> String {
        if self.windows { format!("cmd /c exit {code}") } else { format!("sh -c 'exit {code}'") }
    }

    /// A native command that writes a word to stderr.
    pub(crate) fn native_stderr(&self, word: &str) -> String {
        if self.windows { format!("cmd /c 'echo {word}>&2'") } else { format!("sh -c 'echo {word} >&2'") }
    }

    /// A native command that prints a text.
    pub(crate) fn native_echo(&self, text: &str) -> String {
        if self.windows { format!("cmd /c 'echo {text}'") } else { format!("sh -c 'echo {text}'") }
    }

    /// A number of seconds by which a program of this test is known.
    pub(crate) fn seconds(&self) -> String {
        let seconds = processes::unique_seconds();
        // whole ones for `ping`, in a world where no other test runs
        if self.windows { format!("86{}", seconds.split_once('.').unwrap().0) } else { seconds }
    }

    /// A native program, and its arguments, that runs for as long; the number is found in its command line.
    pub(crate) fn sleeper(&self, seconds: &str) -> (&'static str, String) {
        if self.windows { ("ping", format!("-n {seconds} 127.0.0.1")) } else { ("sleep", seconds.to_owned()) }
    }
}

impl Ran {
    fn of(answer: &Value) -> Self {
        let text = |stream: &str| answer[stream].as_str().unwrap().replace("\r\n", "\n");
        assert_eq!(answer["timed_out"], json!(false), "{answer}");
        Self { rc: answer["rc"].as_i64().unwrap(), stdout: text("stdout"), stderr: text("stderr") }
    }

    /// With the script's own path and name replaced, so that runs of two files can be held against each other.
    pub(crate) fn with_the_script_named(self, word: &str, path: &str, name: &str) -> Self {
        let named = |text: String| text.replace(path, word).replace(name, word);
        Self { rc: self.rc, stdout: named(self.stdout), stderr: named(self.stderr) }
    }

    /// The same for a script that the agent ran: its path is told by its error messages alone.
    pub(crate) fn with_the_agents_script_named(self, word: &str) -> Self {
        let named = |text: String| {
            let mut left = text.as_str();
            let mut out = String::new();
            while let Some(end) = left.find("script.ps1") {
                let start = left[..end].rfind([' ', '\n', '"', '\'', '<']).map_or(0, |at| at + 1);
                out += &left[..start];
                out += word;
                left = &left[end + "script.ps1".len()..];
            }
            out + left
        };
        Self { rc: self.rc, stdout: named(self.stdout), stderr: named(self.stderr) }
    }
}

/// Runs each script for itself, some side by side.
pub(crate) fn each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    const AT_ONCE: usize = 3;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(case);
                }
            });
        }
    });
}

/// A folder with all of this one's files under second names, and its `pwsh.exe` as `powershell.exe` besides.
pub(crate) fn as_windows_powershell(pwsh: &Path, folder: &Path) {
    if folder.exists() {
        return;
    }
    let parent = folder.parent().unwrap();
    let made = tempfile::Builder::new().prefix("powershell.").tempdir_in(parent).unwrap();
    let all = pwsh.parent().unwrap().join(".");
    let copied = Command::new("cp").arg("-al").args([&all, made.path()]).status().unwrap();
    assert!(copied.success());
    std::fs::copy(pwsh, made.path().join("powershell.exe")).unwrap();
    // another test may have been quicker
    if std::fs::rename(made.path(), folder).is_err() {
        assert!(folder.exists());
    }
}
