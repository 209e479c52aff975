//! A process of a call's own that inherits the call's orphans: where cgroups cannot be written, it is what keeps every
//! descendant of a call provable.
//!
//! ```text
//! agent ── subreaper ── leader (the program) ── …
//!              └─ whoever lost its parent, whatever it did to its environment and session
//! ```
//!
//! Implementation note: it is the child that the spawn itself forks, and forks the program once more. It holds no file,
//! takes the exit status of whoever dies below it, and ends with the leader, exactly as the leader ended; who is left
//! then lives on as an orphan of the system's first process. Asked to stay ([`stay`]), it ends only when nobody is left
//! below it, so that its end is the kernel's own word for that. If somebody kills it, the leader dies with it.
//!
//! UNSAFETY: all of it runs in a forked copy of a threaded process, where only async-signal-safe calls are allowed: it
//! makes plain system calls and allocates nothing. The second `fork` finds one thread and no lock held: the C library
//! takes its own for the first and frees them in the child.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "fork, signal masks and waitpid have no safe form"))]

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _},
};

use rustix::process::{Pid, Signal, kill_process};

/// The agent's end of what a new subreaper tells.
#[derive(Debug)]
pub(super) struct Subreaper(PipeReader);

impl Subreaper {
    /// One that is still to be forked, and the end that it tells its leader through.
    pub(super) fn new() -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(reader), writer))
    }

    /// The process number of its leader, once the spawn has come back; `None` where there was no spawn.
    pub(super) fn leader(mut self) -> Option<u32> {
        // told before the spawn comes back, and never waited for: who holds the other end may be another spawn's child
        rustix::io::ioctl_fionbio(&self.0, true).ok()?;
        let mut number = [0; 4];
        self.0.read_exact(&mut number).ok()?;
        u32::try_from(i32::from_ne_bytes(number)).ok()
    }
}

/// Tells a subreaper to live until nobody is left below it, rather than to end with its leader.
pub(super) fn stay(subreaper: u32) {
    send(subreaper, Signal::USR1);
}

/// Lets one go on that somebody has stopped.
pub(super) fn go_on(subreaper: u32) {
    send(subreaper, Signal::CONT);
}

/// Ends one that could not end its processes.
pub(super) fn kill(subreaper: u32) {
    send(subreaper, Signal::KILL);
}

fn send(subreaper: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(subreaper.cast_signed()) {
        let _ = kill_process(pid, signal); // gone already is as good
    }
}

/// What the subreaper of a call needs, made before the fork.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where it tells the leader's process number.
    pub report: PipeWriter,
    /// The line that marks the call's processes, for the subreaper's own environment.
    pub mark: String,
    /// Where this process' environment lies in memory.
    pub environment: Option<(usize, usize)>,
}

/// Where this process' environment lies in memory, as the system shows it to others.
pub(super) fn environment_area() -> Option<(usize, usize)> {
    let mut stat = String::new();
    File::open("/proc/self/stat").ok()?.read_to_string(&mut stat).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // fields 50 and 51 of proc(5); the third is the first after the name
    let (start, end) = (fields.nth(47)?.parse().ok()?, fields.next()?.parse().ok()?);
    (start > 0 && start < end).then_some((start, end))
}

#[cfg(target_os = "linux")]
pub(super) use linux::{available, split};

#[cfg(not(target_os = "linux"))]
pub(super) const fn available() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn split(_plan: &Plan) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The name that `ps` shows, by which the next agent finds one that a killed agent left.
pub(super) const NAME: &str = "podlink-call";

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        ffi::{CStr, c_int},
        io,
        mem::MaybeUninit,
        ptr,
    };

    use rustix::{
        io::Errno,
        process::{Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, setsid},
    };

    use super::Plan;

    /// Whether the system has what it takes.
    pub(in super::super) fn available() -> bool {
        // Linux 5.9; of one file number that is never in use
        // SAFETY: it closes nothing
        unsafe { libc::syscall(libc::SYS_close_range, libc::c_uint::MAX, libc::c_uint::MAX, 0) == 0 }
    }

    /// Makes the calling process, which has just been forked, a subreaper that never returns from here, and goes on in
    /// a new process below it, the leader of a session of its own.
    pub(in super::super) fn split(plan: &Plan) -> io::Result<()> {
        let subreaper = getpid();
        set_child_subreaper(Some(subreaper))?;
        // SAFETY: system calls. Were SIGCHLD ignored, no exit status could be taken.
        let forked = unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::fork()
        };
        match forked {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if getppid() != Some(subreaper) {
                    return Err(Errno::SRCH.into()); // killed in this very instant
                }
                setsid()?;
                Ok(())
            }
            leader => reap(leader, plan),
        }
    }

    /// The rest of the subreaper's life.
    fn reap(leader: libc::pid_t, plan: &Plan) -> ! {
        block_signals();
        // to a pipe that nobody else has written to: it has room for this
        let _ = rustix::io::write(&plan.report, &leader.to_ne_bytes());
        // SAFETY: nothing here uses a file any more. The spawn comes back when its own pipe is closed by this.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        // a folder that is in use by the call alone, or not at all
        let _ = rustix::process::chdir(c"/");
        const NAME: &CStr = c"podlink-call";
        let _ = rustix::thread::set_name(NAME);
        bear(plan);
        let mut leaders_status = None;
        loop {
            let mut status = 0;
            // SAFETY: a system call that writes to a local
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if pid == leader {
                leaders_status = Some(status);
            }
            let nobody_left = pid == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
            if nobody_left || (leaders_status.is_some() && !asked_to_stay()) {
                end_as(leaders_status);
            }
        }
    }

    /// From here on a signal is at most noted: those for the agent are not meant for this process.
    fn block_signals() {
        let mut all = MaybeUninit::uninit();
        // SAFETY: system calls on a local, which the first fills
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
        }
    }

    /// The signal that asks to stay is blocked, and so stays pending.
    fn asked_to_stay() -> bool {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: system calls on a local, which the first fills
        unsafe {
            libc::sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), libc::SIGUSR1) == 1
        }
    }

    /// Puts the call's mark where the system shows this process' environment, in place of the agent's own.
    fn bear(plan: &Plan) {
        let Some((start, end)) = plan.environment else { return };
        let line = plan.mark.as_bytes();
        if end - start <= line.len() {
            return;
        }
        let area = ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel put the environment's text there at exec, in memory of this process that is never
        // unmapped; this copy of the process has one thread, which reads no variable
        unsafe {
            ptr::write_bytes(area, 0, end - start);
            ptr::copy_nonoverlapping(line.as_ptr(), area, line.len());
        }
    }

    /// Ends as the leader did: with its code, or by its signal, whose core is the leader's alone.
    fn end_as(status: Option<c_int>) -> ! {
        // nobody else can have taken the leader's status; if it is missing all the same, that must not look well
        let status = status.unwrap_or(libc::SIGKILL);
        let code = if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            let mut only = MaybeUninit::uninit();
            // SAFETY: system calls on a local, which sigemptyset fills
            unsafe {
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                libc::signal(signal, libc::SIG_DFL);
                libc::sigemptyset(only.as_mut_ptr());
                libc::sigaddset(only.as_mut_ptr(), signal);
                libc::kill(libc::getpid(), signal);
                libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), ptr::null_mut());
            }
            128 + signal // not reached: the default of whatever killed the leader is to kill
        } else {
            libc::WEXITSTATUS(status)
        };
        // SAFETY: a system call
        unsafe { libc::_exit(code) }
    }
}
