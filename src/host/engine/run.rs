//! Runs of other programs: found, bounded in time and output, never left behind.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::host::{Error, ErrorKind, Result};

/// What is kept of each stream: its end, for the reason of a failure stands last. A list of one pod's containers
/// is far below it.
const KEPT: usize = 1 << 20;
/// What a child of the program may keep the pipes open for after the program itself has ended.
const DRAIN: Duration = Duration::from_millis(300);

/// A program with what it is to be given.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) deadline: Duration,
}

/// What a run gave.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
}

impl Invocation {
    pub(crate) fn new<I: IntoIterator<Item: AsRef<OsStr>>>(program: &Path, args: I, deadline: Duration) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            cwd: None,
            env: Vec::new(),
            deadline,
        }
    }

    /// The command line as one would type it, without what it was given in the environment.
    pub(crate) fn shown(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        std::iter::once(name).chain(self.args.iter().map(OsString::as_os_str)).fold(String::new(), |mut line, part| {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&part.to_string_lossy());
            line
        })
    }

    /// Runs it to its end. Whoever drops the future kills it, and its children in its group.
    ///
    /// # Errors
    /// When it cannot be started or does not end in time; how it ended is no error here.
    pub(crate) async fn run(&self) -> Result<Finished> {
        let mut child = self.spawn()?;
        let mut group = Group(child.id());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = {
            let mut reading =
                std::pin::pin!(async { tokio::join!(read_end(out, &mut stdout), read_end(err, &mut stderr)) });
            let waited = tokio::time::timeout(self.deadline, async {
                tokio::select! {
                    status = child.wait() => {
                        // a child that lives on may hold the pipes for ever: what is there is enough
                        drop(tokio::time::timeout(DRAIN, &mut reading).await);
                        status
                    }
                    _ = &mut reading => child.wait().await,
                }
            });
            waited.await
        };
        let finished = |code| Finished {
            code,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        };
        match status {
            Ok(Ok(status)) => {
                group.0 = None;
                Ok(finished(status.code()))
            }
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::Engine, format!("could not wait for `{}`", self.shown())).with_source(error))
            }
            Err(_) => {
                let said = finished(None).last_lines();
                let detail = format!("`{}` did not end within {} s{said}", self.shown(), self.deadline.as_secs_f32());
                Err(Error::new(ErrorKind::Engine, detail))
            }
        }
    }

    /// Runs it to its end, however long that takes, and hands on what it says as it comes; `true` marks stderr.
    /// Whoever drops the future kills it, and its children in its group.
    ///
    /// # Errors
    /// When it cannot be started, or ends otherwise than with code 0.
    pub(crate) async fn stream(&self, mut sink: impl AsyncFnMut(bool, &[u8])) -> Result<()> {
        let mut child = self.spawn()?;
        let mut group = Group(child.id());
        let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
        let (mut out_chunk, mut err_chunk) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        while out.is_some() || err.is_some() {
            tokio::select! {
                read = read_some(&mut out, &mut out_chunk), if out.is_some() => match read {
                    0 => out = None,
                    count => sink(false, &out_chunk[..count]).await,
                },
                read = read_some(&mut err, &mut err_chunk), if err.is_some() => match read {
                    0 => err = None,
                    count => sink(true, &err_chunk[..count]).await,
                },
            }
        }
        let status = child.wait().await.map_err(|error| {
            Error::new(ErrorKind::Engine, format!("could not wait for `{}`", self.shown())).with_source(error)
        })?;
        group.0 = None;
        if status.success() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Engine, format!("`{}` ended with {status}", self.shown())))
    }

    fn spawn(&self) -> Result<tokio::process::Child> {
        #[expect(clippy::disallowed_methods, reason = "the host's one place to run programs")]
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command.spawn().map_err(|error| {
            Error::new(ErrorKind::Engine, format!("could not start `{}`", self.shown())).with_source(error)
        })
    }

    /// Runs it and takes nothing but exit code 0.
    ///
    /// # Errors
    /// As [`Invocation::run`], and when it ends otherwise: the error names the program, its code and its last lines.
    pub(crate) async fn run_to_success(&self) -> Result<Finished> {
        let finished = self.run().await?;
        if finished.code == Some(0) {
            return Ok(finished);
        }
        let how = finished.code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with code {code}"));
        Err(Error::new(ErrorKind::Engine, format!("`{}` {how}{}", self.shown(), finished.last_lines())))
    }
}

impl Finished {
    /// `: ` and the last lines of stderr, else of stdout, on one line.
    pub(crate) fn last_lines(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(5)..];
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}

/// Kills the process group on the way out, unless its leader has ended by itself.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // it may have ended in this very moment: nothing to do about that
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn read_end(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
}

async fn read_some(from: &mut Option<impl AsyncRead + Unpin>, chunk: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(chunk).await.unwrap_or(0),
        None => 0,
    }
}

/// Where programs are looked for: `PATH`, then where users put their own.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    if let Some(home) = dirs::home_dir() {
        folders.extend([home.join(".local/bin"), home.join("bin")]);
    }
    folders.retain(|folder| folder.is_absolute());
    folders
}

/// The program of this name, where there is one that may be run.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    search_path()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, deadline: Duration) -> Invocation {
        Invocation::new(Path::new("/bin/sh"), ["-c", script], deadline)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn failures_name_program_code_and_last_lines() {
        let error = sh("echo fine; echo bad >&2; exit 125", LONG).run_to_success().await.unwrap_err().to_string();
        assert!(error.contains("`sh -c") && error.contains("code 125") && error.ends_with(": bad"), "{error}");
    }

    #[tokio::test]
    async fn time_is_bounded_and_nothing_is_left() {
        let begun = std::time::Instant::now();
        let error = sh("sleep 600 & echo $!; wait", Duration::from_millis(300)).run().await.unwrap_err().to_string();
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        let pid: i32 = error.rsplit(' ').next().unwrap().parse().unwrap();
        let gone = || {
            let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let deadline = std::time::Instant::now() + LONG;
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "{pid} lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_child_that_holds_the_pipes_holds_nothing_up() {
        let finished = sh("sleep 20 & echo $!", LONG).run().await.unwrap();
        let pid = rustix::process::Pid::from_raw(finished.stdout.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn output_is_bounded_and_its_end_kept() {
        let finished = sh("head -c 5000000 /dev/zero; echo end", LONG).run().await.unwrap();
        assert!(finished.stdout.len() <= 2 * KEPT + (16 << 10) && finished.stdout.ends_with("end\n"));
    }
}
