//! A terminal for a program: a pair of which the agent holds one end, and the program has the other as its stdin,
//! stdout, stderr and controlling terminal.
//!
//! UNSAFETY: `pre_exec` is unsafe because its closure runs in a forked copy of a threaded process, where only
//! async-signal-safe calls are allowed. The closure here makes plain system calls and allocates nothing. Waiting for a
//! file descriptor is unsafe because whoever owns it has to keep it open for as long.
#![expect(unsafe_code, reason = "pre_exec and AsyncFd have no safe form")]

use std::{io, os::fd::OwnedFd, process::Stdio};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    process::{ioctl_tiocsctty, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    stdio,
    termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    process::Command,
};

/// The agent's end of a terminal.
///
/// Dropping it hangs the terminal up: who has it as their controlling one gets a SIGHUP.
#[derive(Debug)]
pub(crate) struct Pty {
    end: AsyncFd<OwnedFd>,
}

/// The program's end of a terminal that no program has yet.
#[derive(Debug)]
pub(crate) struct PtySlave {
    end: OwnedFd,
}

impl Pty {
    /// All that the kernel may hold of its output, and more.
    pub(in crate::guest) const MOST_LEFT: u64 = 64 * 1024;

    /// A new terminal of this size: the agent's end, and the child's.
    ///
    /// Both close on exec, and neither becomes the agent's own controlling terminal.
    pub(crate) fn open(rows: u16, cols: u16) -> io::Result<(Self, PtySlave)> {
        let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&end)?;
        unlockpt(&end)?;
        let slave = open_slave(&end)?;
        tcsetwinsize(&end, size(rows, cols))?;
        rustix::io::ioctl_fionbio(&end, true)?;
        // SAFETY: an `OwnedFd` is open and the same for as long as it lives, and `AsyncFd` owns it.
        let end = unsafe { AsyncFd::register(end) }?;
        Ok((Self { end }, PtySlave { end: slave }))
    }

    /// Gives it another size; whoever is in its foreground gets a SIGWINCH where that is news.
    pub(crate) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        Ok(tcsetwinsize(self.end.get_ref(), size(rows, cols))?)
    }

    /// Waits for output and reads it; 0 is the end: nobody has the other end open any more.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.end.async_io(Interest::READABLE, |end| read_once(end, buffer)).await
    }

    /// Reads what is there at this moment: `None` where nothing is, 0 at the end.
    ///
    /// Nothing that was written before the call is missed.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match read_once(self.end.get_ref(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    /// What is left of the output after the program's end: what is there now.
    #[expect(clippy::unused_async, reason = "its twin waits for it")]
    pub(in crate::guest) async fn read_last(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.read_now(buffer)
    }

    /// Waits until it takes more, and types some or all of these bytes. What nobody is left to read vanishes.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.end.writable().await?;
            if let Ok(written) = ready.try_io(|end| Ok(rustix::io::write(end, bytes)?)) {
                return written;
            }
            // full, and nobody has the other end open: it counts as writable for ever and takes nothing more
            if ready.ready().is_write_closed() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// The character that a program takes for the end of its input when it begins a line (Ctrl-D), where programs read
    /// by lines at this moment: the nearest thing to closing one direction of a terminal.
    pub(crate) fn end_of_input(&self) -> Option<u8> {
        let modes = tcgetattr(self.end.get_ref()).ok()?;
        let code = modes.special_codes[SpecialCodeIndex::VEOF];
        (modes.local_modes.contains(LocalModes::ICANON) && code != 0).then_some(code)
    }

    /// What has to be typed for the program to see the end of its input. One character of it ends a line that has
    /// begun; `midline` asks for another.
    pub(in crate::guest) fn farewell(&self, midline: bool) -> Vec<u8> {
        self.end_of_input().map_or_else(Vec::new, |end| vec![end; 1 + usize::from(midline)])
    }

    /// The end itself, for somebody else to read from: blocking, and with an error (EIO) for its end. Nothing is to be
    /// read from or written to this one afterwards.
    pub(crate) fn another_handle(&self) -> io::Result<OwnedFd> {
        let end = self.end.get_ref().try_clone()?;
        rustix::io::ioctl_fionbio(&end, false)?;
        Ok(end)
    }
}

fn read_once(end: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    match rustix::io::read(end, buffer) {
        // how Linux says that the last one who had the other end open has closed it
        Err(Errno::IO) => Ok(0),
        read => Ok(read?),
    }
}

const fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Asked of the end itself, which works whatever is mounted on `/dev/pts`; by its name where the system is older.
fn open_slave(end: &OwnedFd) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    if let Ok(slave) =
        rustix::pty::ioctl_tiocgptpeer(end, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
    {
        return Ok(slave);
    }
    let name = ptsname(end, Vec::new())?;
    Ok(rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?)
}

impl PtySlave {
    /// Makes it the command's stdin, stdout and stderr, and its controlling terminal.
    ///
    /// To be called after everything else that adds a step between fork and exec: this one has to run in the very
    /// process that becomes the program. The end stays open until `command` is dropped.
    pub(crate) fn attach_to(self, command: &mut Command) -> io::Result<()> {
        command.stdin(Stdio::from(self.end.try_clone()?));
        command.stdout(Stdio::from(self.end.try_clone()?));
        command.stderr(Stdio::from(self.end));
        // SAFETY: see the module: system calls alone, on nothing but the process itself and its stdin.
        unsafe {
            command.pre_exec(become_controlling);
        }
        Ok(())
    }
}

/// Makes stdin the controlling terminal, in a session that has none: a new one, unless this process leads one that was
/// made for it.
///
/// It tries rather than asks which session this is: that of a container's first processes has no number there, and the
/// library's `getsid` ends the process over it.
fn become_controlling() -> io::Result<()> {
    match setsid() {
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    // the standard library has put the terminal there before the steps of `pre_exec`
    Ok(ioctl_tiocsctty(stdio::stdin())?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{process::Child, time::timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A shell with a terminal of its own; `own_session` makes it a session leader before, as the agent's trees do.
    fn shell(script: &str, own_session: bool) -> (Pty, Child) {
        let (pty, slave) = Pty::open(24, 80).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test")]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).kill_on_drop(true);
        if own_session {
            // SAFETY: one system call.
            unsafe {
                command.pre_exec(|| {
                    setsid()?;
                    Ok(())
                });
            }
        }
        slave.attach_to(&mut command).unwrap();
        let child = command.spawn().unwrap();
        (pty, child)
    }

    /// Reads until the text has come; returns all that came.
    async fn until(pty: &Pty, wanted: &str) -> String {
        let mut text = String::new();
        let reading = async {
            let mut buffer = [0; 4096];
            while !text.contains(wanted) {
                let count = pty.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the end came before {wanted:?}: {text:?}");
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        let came = timeout(PATIENCE, reading).await;
        assert!(came.is_ok(), "waited in vain for {wanted:?}: {text:?}");
        text
    }

    /// Reads to the end.
    async fn rest(pty: &Pty) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = timeout(PATIENCE, pty.read(&mut buffer)).await.expect("an end").unwrap();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    async fn type_all(pty: &Pty, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = timeout(PATIENCE, pty.write(bytes)).await.expect("it takes more").unwrap();
            bytes = &bytes[count..];
        }
    }

    /// What `seq` prints.
    fn numbers(last: u32) -> String {
        let lines: Vec<String> = (1..=last).map(|n| n.to_string()).collect();
        lines.join("\n") + "\n"
    }

    #[tokio::test]
    async fn it_is_a_terminal_of_the_asked_size_and_the_controlling_one() {
        for own_session in [false, true] {
            let script = "stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo all; : < /dev/tty && echo controls; ps -o tty= -p $$";
            let (pty, mut child) = shell(script, own_session);
            let said = String::from_utf8(rest(&pty).await).unwrap();
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines[0], "24 80", "{said}");
            assert!(lines[1].starts_with("/dev/pts/"), "{said}");
            assert_eq!(lines[2..4], ["all", "controls"], "{said}");
            assert_eq!(format!("/dev/{}", lines[4].trim()), lines[1], "{said}");
            assert!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
        }
    }

    #[tokio::test]
    async fn a_new_size_is_seen_and_signalled() {
        let (pty, _child) = shell("trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.02; done", true);
        until(&pty, "ready").await;
        pty.resize(50, 132).unwrap();
        until(&pty, "50 132").await;
        for (rows, cols) in [(1, 1), (u16::MAX, u16::MAX)] {
            pty.resize(rows, cols).unwrap();
        }
    }

    #[tokio::test]
    async fn ctrl_c_ends_what_is_in_the_foreground() {
        let (pty, mut child) = shell("echo ready; exec sleep 600", true);
        until(&pty, "ready").await;
        // the shell may not have become `sleep` yet: it dies of it just as well
        type_all(&pty, b"\x03").await;
        let status = timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    }

    #[tokio::test]
    async fn its_end_is_an_end_and_not_an_error() {
        let (pty, mut child) = shell("stty -opost; seq 1 20000", true);
        let said = rest(&pty).await;
        let wanted = numbers(20_000);
        assert_eq!(String::from_utf8(said).unwrap(), wanted);
        assert_eq!(pty.read_now(&mut [0; 16]).unwrap(), Some(0));
        assert!(child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn input_comes_through_and_can_be_ended() {
        let (pty, mut child) = shell("stty -echo; echo ready; cat > /dev/null; echo ended; stty raw; echo raw", true);
        until(&pty, "ready").await;
        let line = [[b'x'; 999].as_slice(), b"\n"].concat();
        for _ in 0..100 {
            type_all(&pty, &line).await;
        }
        let end = pty.end_of_input().unwrap();
        assert_eq!(end, 4);
        type_all(&pty, &[end]).await;
        until(&pty, "ended").await;
        rest(&pty).await;
        assert!(child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn what_stays_behind_with_it_does_not_hold_the_reader_up() {
        let seconds = format!("600.{}", std::process::id());
        // one that ignores the hang-up, as `nohup` makes it
        let (pty, mut child) = shell(&format!("trap '' HUP; sleep {seconds} & echo $!; exit 3"), true);
        let said = until(&pty, "\n").await;
        assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(3));
        let mut buffer = [0; 64];
        assert_eq!(pty.read_now(&mut buffer).unwrap(), None, "nothing more, and no end");
        let left: i32 = said.trim().parse().unwrap();
        let left = rustix::process::Pid::from_raw(left).unwrap();
        assert!(rustix::process::test_kill_process(left).is_ok(), "it lives on");
        // whoever takes it over sees its end with the last of them
        let end = pty.another_handle().unwrap();
        drop(pty);
        let read = tokio::task::spawn_blocking(move || rustix::io::read(&end, &mut [0; 64]));
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
        assert_eq!(timeout(PATIENCE, read).await.expect("an end").unwrap(), Err(Errno::IO));
    }

    #[tokio::test]
    async fn who_reads_after_the_leaders_end_gets_all() {
        for (before, left_behind) in [("", false), ("trap '' HUP; sleep 600 & ", true)] {
            let (pty, mut child) = shell(&format!("{before}stty -opost; echo $!; seq 1 1500"), true);
            assert!(timeout(PATIENCE, child.wait()).await.expect("it all fits").unwrap().success());
            let mut buffer = vec![0; 64 * 1024];
            let mut all = Vec::new();
            while let Some(count @ 1..) = pty.read_now(&mut buffer).unwrap() {
                all.extend_from_slice(&buffer[..count]);
            }
            let all = String::from_utf8(all).unwrap();
            let (pid, all) = all.split_once('\n').unwrap();
            assert_eq!(all, numbers(1500));
            if left_behind {
                let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn somebody_else_can_read_it_to_its_end() {
        let (pty, mut child) = shell("echo said", true);
        let end = pty.another_handle().unwrap();
        drop(pty);
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = rustix::io::read(&end, &mut buffer) {
                all.extend_from_slice(&buffer[..count]);
            }
            all
        });
        assert_eq!(timeout(PATIENCE, read).await.unwrap().unwrap(), b"said\r\n");
        assert!(child.wait().await.unwrap().success());
    }
}
