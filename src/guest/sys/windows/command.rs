//! A call's program: what it is started with, and how it ended.

use std::{
    collections::BTreeMap,
    io,
    os::windows::io::AsHandle as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use windows_sys::Win32::System::Threading::CREATE_NO_WINDOW;

use super::{
    command_line,
    console::PseudoConsole,
    create_process::{Creation, Standard, create, exit_code},
    environment::Environment,
    handle::duplicate,
    program::{self, Kind},
    pty::PtySlave,
    tree::{CallTree, MARK},
    wait::HandleWait,
};
use crate::guest::sys::Exit;

pub(crate) use super::pipe::ChildEnd;

/// A program that is to be started.
#[derive(Debug)]
pub(crate) struct Command {
    argv: Vec<String>,
    folder: PathBuf,
    clear: bool,
    variables: BTreeMap<String, String>,
    streams: Option<[ChildEnd; 3]>,
    terminal: Option<PtySlave>,
    allow_breakaway: bool,
}

impl Command {
    /// A program and its arguments, in a folder, with the environment of the agent's account. `argv` is never empty.
    pub(crate) fn new(argv: &[String], folder: &Path) -> Self {
        Self {
            argv: argv.to_vec(),
            folder: folder.to_owned(),
            clear: false,
            variables: BTreeMap::new(),
            streams: None,
            terminal: None,
            allow_breakaway: false,
        }
    }

    /// Takes all variables away but those without which Windows starts hardly anything.
    pub(crate) const fn clear_env(&mut self) {
        self.clear = true;
    }

    /// Adds variables.
    pub(crate) fn envs(&mut self, variables: &BTreeMap<String, String>) {
        self.variables.extend(variables.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// What the program reads and writes; nothing where it is not said.
    pub(crate) fn streams(&mut self, stdin: ChildEnd, stdout: ChildEnd, stderr: ChildEnd) {
        self.streams = Some([stdin, stdout, stderr]);
    }

    /// The terminal that the program reads and writes instead.
    pub(crate) fn terminal(&mut self, terminal: PtySlave) {
        self.terminal = Some(terminal);
    }

    /// Lets the program start others outside of its tree, where it asks for that.
    pub(crate) const fn allow_breakaway(&mut self) {
        self.allow_breakaway = true;
    }

    /// Starts it inside of the tree.
    pub(crate) fn spawn(self, tree: &mut CallTree) -> io::Result<Child> {
        let mut environment = if self.clear { Environment::least() } else { Environment::current() };
        for (name, value) in &self.variables {
            environment.set(name, value);
        }
        environment.set(MARK, tree.mark());
        let own_path = std::env::var_os("PATH");
        let path = environment.get("PATH").or(own_path.as_deref());
        let (program, kind) = program::find(&self.argv[0], &self.folder, path, environment.get("PATHEXT"))?;
        let (program, line) = match kind {
            Kind::Program => (program, command_line::of_program(&self.argv)?),
            Kind::Batch => (program::command_processor(), command_line::of_batch(&program, &self.argv[1..])?),
        };
        let made = |standard, flags| {
            let (program, folder) = (program.as_path(), self.folder.as_path());
            create(Creation { program, line, environment: &environment, folder, standard, flags })
        };
        let console = self.terminal.map(PtySlave::into_console);
        let suspended = if let Some(console) = &console {
            console.with(|console| made(Standard::Console(console), 0))?
        } else {
            let streams = self.streams.unwrap_or_else(|| [(); 3].map(|()| ChildEnd::null()));
            let [stdin, stdout, stderr] = streams.map(ChildEnd::into_handle);
            let (stdin, stdout, stderr) = (stdin?, stdout?, stderr?);
            // a console that nobody sees: without any, many programs open one of their own
            made(Standard::Streams([stdin.as_handle(), stdout.as_handle(), stderr.as_handle()]), CREATE_NO_WINDOW)?
        };
        // all that can fail comes before its first step: dropped, it never takes one
        let pid = suspended.pid();
        let child = Child { process: HandleWait::new(duplicate(suspended.process())?)?, pid, console };
        tree.take_in(suspended.process(), pid, self.allow_breakaway)?;
        suspended.resume()?;
        Ok(child)
    }
}

/// A program that has been started.
#[derive(Debug)]
pub(crate) struct Child {
    process: HandleWait,
    pid: u32,
    /// Its terminal, which ends with it.
    console: Option<Arc<PseudoConsole>>,
}

impl Child {
    /// Its process number.
    pub(crate) const fn id(&self) -> u32 {
        self.pid
    }

    /// Waits for its end; may be asked again and again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        self.process.happens().await;
        if let Some(console) = self.console.take() {
            console.close(); // who reads the screen sees its end
        }
        Ok(Exit::Code(exit_code(self.process.handle())?.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::guest::sys::{Ended, OutputEnd, OutputPipe, SignalNumber, TreeHome, windows::pty::Pty};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A call that has been started.
    struct Call {
        tree: CallTree,
        child: Child,
        stdout: OutputPipe,
        stderr: OutputPipe,
    }

    fn prepared(argv: &[&str]) -> Command {
        let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
        Command::new(&argv, &program::system_root())
    }

    fn begin_with(name: &str, mut command: Command, stdin: ChildEnd) -> io::Result<Call> {
        let mut tree = TreeHome::detect("unit", false, None).plant(&format!("unit-{name}-{}", std::process::id()));
        let (stdout, out) = OutputPipe::new()?;
        let (stderr, err) = OutputPipe::new()?;
        command.streams(stdin, out, err);
        let child = command.spawn(&mut tree)?;
        Ok(Call { tree, child, stdout, stderr })
    }

    fn begin(name: &str, argv: &[&str]) -> Call {
        begin_with(name, prepared(argv), ChildEnd::null()).unwrap()
    }

    async fn rest(pipe: &mut OutputPipe) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 100_000];
        loop {
            let count = tokio::time::timeout(PATIENCE, pipe.read(&mut buffer)).await.expect("an end").unwrap();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    async fn code_of(child: &mut Child) -> i64 {
        match tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap() {
            Exit::Code(code) => code,
            Exit::Signal(signal) => panic!("signal {signal}"),
        }
    }

    /// Reads until a line has come.
    async fn line(pipe: &mut OutputPipe) {
        let mut buffer = [0; 1000];
        let count = tokio::time::timeout(PATIENCE, pipe.read(&mut buffer)).await.expect("a line").unwrap();
        assert!(count > 0, "it ended before a line came");
    }

    async fn until_there_are(count: usize, tree: &CallTree) {
        let deadline = Instant::now() + PATIENCE;
        while tree.members().len() != count {
            assert!(Instant::now() < deadline, "waited in vain for {count}: {:?}", tree.members());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn exit_codes_come_as_they_are() {
        for code in [0, 3, 255, 259, 0xC000_0005_u32] {
            let text = format!("exit {}", code.cast_signed());
            let mut call = begin(&format!("code{code}"), &["cmd", "/c", &text]);
            assert_eq!(code_of(&mut call.child).await, i64::from(code), "{text}");
            assert_eq!(call.child.wait().await.unwrap(), Exit::Code(code.into()), "asked again");
            assert!(rest(&mut call.stdout).await.is_empty() && rest(&mut call.stderr).await.is_empty());
        }
    }

    #[tokio::test]
    async fn all_output_comes_and_the_streams_stay_apart() {
        let mut call = begin("apart", &["cmd", "/c", "echo out& echo err>&2"]);
        let (out, err) = tokio::join!(rest(&mut call.stdout), rest(&mut call.stderr));
        assert_eq!((out.as_slice(), err.as_slice()), (b"out\r\n".as_slice(), b"err\r\n".as_slice()));
        assert_eq!(code_of(&mut call.child).await, 0);
    }

    #[tokio::test]
    async fn ten_megabytes_come_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big");
        let bytes: Vec<u8> = (0..10_000_000_u32).map(|n| b'!' + u8::try_from(n * 7 % 90).unwrap()).collect();
        fs_err::write(&path, &bytes).unwrap();
        let mut call = begin("big", &["cmd", "/c", "type", path.to_str().unwrap()]);
        let out = rest(&mut call.stdout).await;
        assert!(out == bytes, "{} bytes came", out.len());
        assert_eq!(code_of(&mut call.child).await, 0);
    }

    #[tokio::test]
    async fn stdin_is_nothing_a_file_or_a_pipe() {
        // `more` and `sort` are not everywhere: `findstr` reads its stdin to the end
        let argv = ["findstr", "a"];
        let mut call = begin("null", &argv);
        assert!(rest(&mut call.stdout).await.is_empty());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdin");
        fs_err::write(&path, "abc\r\nxyz\r\n").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let mut call = begin_with("file", prepared(&argv), file.into()).unwrap();
        assert_eq!(rest(&mut call.stdout).await, b"abc\r\n");
        let (input, end) = crate::guest::sys::InputPipe::new().unwrap();
        let mut call = begin_with("pipe", prepared(&argv), end).unwrap();
        let text = "a line\r\n".repeat(30_000);
        let write = async {
            let mut left = text.as_bytes();
            while !left.is_empty() {
                let count = tokio::time::timeout(PATIENCE, input.write(left)).await.unwrap().unwrap();
                left = &left[count..];
            }
            drop(input);
        };
        let ((), out) = tokio::join!(write, rest(&mut call.stdout));
        assert_eq!(out.len(), text.len());
        assert_eq!(code_of(&mut call.child).await, 0);
    }

    #[tokio::test]
    async fn writing_to_a_program_that_has_ended_is_an_error() {
        let (input, end) = crate::guest::sys::InputPipe::new().unwrap();
        let mut call = begin_with("gone", prepared(&["cmd", "/c", "exit 0"]), end).unwrap();
        code_of(&mut call.child).await;
        let write = async { while input.write(&[b'x'; 10_000]).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, write).await.expect("an error, not a wait");
    }

    #[tokio::test]
    async fn ending_a_tree_ends_all_of_it() {
        let mut call = begin("tree", &["cmd", "/c", "cmd", "/c", "echo begun& ping -n 600 127.0.0.1>nul"]);
        line(&mut call.stdout).await;
        until_there_are(3, &call.tree).await;
        let now = Instant::now();
        let ended = call.tree.end(|| now).await;
        assert_eq!(ended, Ended { killed: 3, survivors: Vec::new() });
        assert_eq!(code_of(&mut call.child).await, 137);
        rest(&mut call.stdout).await; // nobody holds it
        assert!(call.tree.signal_leader("KILL".parse().unwrap()).is_err(), "it has ended");
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_lives_on() {
        let mut call = begin("left", &["cmd", "/c", "start /b ping -n 30 127.0.0.1"]);
        assert_eq!(code_of(&mut call.child).await, 0);
        assert!(call.tree.release());
        until_there_are(1, &call.tree).await;
        assert_eq!(call.tree.signal_all(SignalNumber::End(137)), 1, "it lives, and is still the call's");
        rest(&mut call.stdout).await; // that was the last who held it
        until_there_are(0, &call.tree).await;
    }

    #[tokio::test]
    async fn a_running_call_is_found_by_its_name() {
        let call = begin("found", &["ping", "-n", "600", "127.0.0.1"]);
        let Call { tree, mut child, .. } = call;
        drop(tree); // as if this agent had crashed
        let found = TreeHome::detect("unit", false, None).find(&format!("unit-found-{}", std::process::id()));
        let now = Instant::now();
        assert_eq!(found.end(|| now).await, Ended { killed: 1, survivors: Vec::new() });
        assert_eq!(code_of(&mut child).await, 137);
    }

    #[tokio::test]
    async fn what_cannot_be_started_leaves_nobody() {
        for argv in [["no-such-program"], [r"C:\no\such.exe"]] {
            let error = begin_with("none", prepared(&argv), ChildEnd::null()).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{argv:?}");
        }
    }

    #[tokio::test]
    async fn batch_files_get_their_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b & c.cmd");
        fs_err::write(&path, "@echo [%1] [%2]\r\n@exit /b 7\r\n").unwrap();
        let mut call = begin("batch", &[path.to_str().unwrap(), "x & y", "^"]);
        assert_eq!(String::from_utf8(rest(&mut call.stdout).await).unwrap(), "[\"x & y\"] [\"^\"]\r\n");
        assert_eq!(code_of(&mut call.child).await, 7);
    }

    #[tokio::test]
    async fn variables_are_the_calls_own() {
        let mut command = prepared(&["cmd", "/c", "echo %A%[%Path%]%PODLINK_CALL%"]);
        command.clear_env();
        command.envs(&BTreeMap::from([("A".to_owned(), "1".to_owned()), ("path".to_owned(), "p".to_owned())]));
        let mut call = begin_with("env", command, ChildEnd::null()).unwrap();
        let said = String::from_utf8(rest(&mut call.stdout).await).unwrap();
        assert_eq!(said.trim_end(), format!("1[p]unit-env-{}", std::process::id()));
    }

    #[tokio::test]
    async fn a_terminal_ends_with_its_program() {
        let (pty, slave) = Pty::open(24, 80).unwrap();
        let pty = Arc::new(pty);
        // it reads nothing: Wine gives a program in a pseudo console no stdin and stdout of it
        let mut command = prepared(&["cmd", "/c", "exit 3"]);
        command.terminal(slave);
        let mut tree = TreeHome::detect("unit", false, None).plant(&format!("unit-pty-{}", std::process::id()));
        let mut child = command.spawn(&mut tree).unwrap();
        if let Err(error) = pty.resize(40, 120) {
            // Wine has no other size than the first
            assert_eq!(error.raw_os_error(), Some(windows_sys::Win32::Foundation::E_NOTIMPL), "{error}");
        }
        let mut end = OutputEnd::Terminal(Arc::clone(&pty));
        let mut screen = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            loop {
                match end.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => screen.extend_from_slice(&buffer[..count]),
                }
            }
        };
        let begun = Instant::now();
        let (code, read) = tokio::join!(code_of(&mut child), tokio::time::timeout(PATIENCE, reading));
        let screen = String::from_utf8_lossy(&screen);
        assert!(read.is_ok(), "the end of the screen, after {:?}: {screen:?}", begun.elapsed());
        assert_eq!(code, 3, "{screen:?}");
    }
}
