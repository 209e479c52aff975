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
//! As a copy of the agent it would keep alive what the agent had in memory when it was forked. So when the call is not
//! a short one it becomes a process without that (`podlink agent hold`), where the agent has an executable to name.
//!
//! UNSAFETY: all of it runs in a forked copy of a threaded process, where only async-signal-safe calls are allowed: it
//! makes plain system calls and allocates nothing. The second `fork` finds one thread and no lock held: the C library
//! takes its own for the first and frees them in the child.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "fork, signal masks and waitpid have no safe form"))]

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
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
    pub mark: CString,
    /// What is the same for all.
    pub home: Home,
}

/// What subreapers of this process have in common.
#[derive(Debug, Clone)]
pub(super) struct Home {
    /// The executable whose `agent hold` one becomes.
    program: Option<CString>,
    /// Where this process' environment lies in memory.
    environment: Option<(usize, usize)>,
}

impl Home {
    /// What this system offers; `None` where it cannot be done.
    pub(super) fn detect(program: Option<&Path>) -> Option<Self> {
        let program = program.and_then(|program| CString::new(program.as_os_str().as_bytes()).ok());
        available().then(|| Self { program, environment: environment_area() })
    }
}

/// Where this process' environment lies in memory, as the system shows it to others.
fn environment_area() -> Option<(usize, usize)> {
    let mut text = String::new();
    File::open("/proc/self/stat").ok()?.read_to_string(&mut text).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    // fields 50 and 51 of proc(5); the third is the first after the name
    let (start, end) = (fields.nth(47)?.parse().ok()?, fields.next()?.parse().ok()?);
    (start > 0 && start < end).then_some((start, end))
}

#[cfg(target_os = "linux")]
use linux::available;
#[cfg(target_os = "linux")]
pub use linux::hold_loop;
#[cfg(target_os = "linux")]
pub(super) use linux::split;

#[cfg(not(target_os = "linux"))]
const fn available() -> bool {
    false
}

/// The whole of `podlink agent hold`, which this system has no use for.
#[cfg(not(target_os = "linux"))]
pub fn hold_loop(_leader: i32) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn split(_plan: &Plan) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The name that `ps` shows, by which the next agent finds one that a killed agent left.
pub(super) const NAME: &CStr = c"podlink-call";

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        ffi::{CString, c_int},
        io,
        mem::MaybeUninit,
        ptr,
    };

    use rustix::{
        io::Errno,
        process::{Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, setsid},
    };

    use super::{NAME, Plan};

    /// How long nobody may have died below one before it becomes a process without the agent's memory.
    static QUIET: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

    /// Whether the system has what it takes.
    pub(super) fn available() -> bool {
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
        let _ = rustix::thread::set_name(NAME);
        bear(plan);
        watch(leader, plan.home.program.as_ref().map(|program| (program, &plan.mark)))
    }

    /// The whole of `podlink agent hold`: the rest of the life of a subreaper that was a copy of the agent. Never
    /// returns.
    pub fn hold_loop(leader: i32) {
        block_signals();
        let _ = rustix::thread::set_name(NAME);
        watch(leader, None)
    }

    /// Takes the exit status of everybody until it is time to end. `slim` is the executable to become, and the line of
    /// its environment.
    fn watch(leader: libc::pid_t, mut slim: Option<(&CString, &CString)>) -> ! {
        let mut leaders_status = None;
        loop {
            let mut status = 0;
            // the leader's status could not be taken along
            let may_become = slim.filter(|_| leaders_status.is_none());
            let options = libc::__WALL | if may_become.is_some() { libc::WNOHANG } else { 0 };
            // SAFETY: a system call that writes to a local
            let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
            if pid == leader {
                leaders_status = Some(status);
            }
            let nobody_left = pid == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
            if nobody_left || (leaders_status.is_some() && !asked_to_stay()) {
                end_as(leaders_status);
            }
            if let (0, Some((program, mark))) = (pid, may_become)
                && nobody_dies_for_a_while()
            {
                become_slim(program, mark, leader);
                slim = None; // it did not work: on as what it is
            }
        }
    }

    /// Waits for a death, for [`QUIET`] at most.
    fn nobody_dies_for_a_while() -> bool {
        let mut death = MaybeUninit::uninit();
        // SAFETY: system calls on a local, which the first fills. The signal is blocked, so none is missed.
        unsafe {
            libc::sigemptyset(death.as_mut_ptr());
            libc::sigaddset(death.as_mut_ptr(), libc::SIGCHLD);
            libc::sigtimedwait(death.as_ptr(), ptr::null_mut(), &raw const QUIET) == -1
        }
    }

    /// `podlink agent hold <leader>`; comes back only where that cannot be executed. Children, what they fall to, and
    /// signals both blocked and pending stay as they are.
    fn become_slim(program: &CString, mark: &CString, leader: libc::pid_t) {
        let mut digits = [0_u8; 12]; // the last stays 0, and a number of 32 bits has at most ten
        let (mut at, mut rest) = (digits.len() - 1, leader.unsigned_abs());
        while rest > 0 {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        let number = digits[at..].as_ptr().cast();
        let argv = [NAME.as_ptr(), c"agent".as_ptr(), c"hold".as_ptr(), number, ptr::null()];
        let envp = [mark.as_ptr(), ptr::null()];
        // SAFETY: strings that end with 0, and arrays that end with null
        unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
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
        let Some((start, end)) = plan.home.environment else { return };
        let line = plan.mark.to_bytes();
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
        // nobody else can have taken the leader's status; only by hand can this be started without a leader
        let status = status.unwrap_or(255 << 8);
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
