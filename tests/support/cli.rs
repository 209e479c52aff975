//! Runs of the real `podlink`.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// A command line of `podlink`, in an environment that holds nothing but what the test says.
#[must_use]
#[derive(Debug, Default)]
pub struct Cli {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
}

/// What came of it.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Cli {
    pub fn new<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Self {
        Self { args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(), ..Self::default() }
    }

    /// With these arguments besides.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// With `PODLINK_HOME`.
    pub fn home(self, home: &Path) -> Self {
        self.env("PODLINK_HOME", home)
    }

    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn stdin(mut self, input: &[u8]) -> Self {
        input.clone_into(&mut self.stdin);
        self
    }

    /// The command, for tests that need it alive.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podlink"));
        command.args(&self.args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("LANG", "C.UTF-8").env("COLUMNS", "100");
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Run {
        use std::io::Write as _;
        let begun = std::time::Instant::now();
        let mut child =
            self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = self.stdin;
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: begun.elapsed(),
        }
    }
}

impl Run {
    /// Asserts that it ended with `code`.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
    }
}
