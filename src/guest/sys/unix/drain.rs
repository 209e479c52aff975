//! What processes that outlive their call go on writing: read, and dropped, for as long as they live.
//!
//! Implementation note: if the agent itself held the read ends, its end would break the pipes of programs that are
//! to live on undisturbed. So a process of its own (`podlink agent drain`) gets them over a socket, reads until the
//! last writer is gone, and ends when both the socket and all pipes are closed. It is started with the first pipe
//! handed over, and sits in a session of its own and in no call's tree.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::Stdio,
    sync::Mutex,
};

use super::first_process::WaitedFor;
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

/// Hands pipes to the process that drains them.
#[derive(Debug)]
pub(crate) struct Drainer {
    /// The executable whose `agent drain` it is; `None` keeps the pipes in this process.
    program: Option<PathBuf>,
    socket: Mutex<Option<OwnedFd>>,
}

impl Drainer {
    /// A drainer that starts nothing yet.
    pub(crate) const fn new(program: Option<PathBuf>) -> Self {
        Self { program, socket: Mutex::new(None) }
    }

    /// Takes over a pipe. Blocks for as long as starting a process takes.
    pub(crate) fn take(&self, pipe: OwnedFd) {
        let Some(program) = &self.program else { return keep(pipe) };
        let mut socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // a second try finds the process killed and starts another
        for _ in 0..2 {
            if socket.is_none() {
                match start(program) {
                    Ok(started) => *socket = Some(started),
                    Err(error) => {
                        tracing::warn!(%error, "no process to drain left-over output; the agent does it while it lives");
                        return keep(pipe);
                    }
                }
            }
            match socket.as_ref().map(|socket| send(socket, &pipe)) {
                Some(Ok(())) => return,
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => *socket = None,
            }
        }
        keep(pipe);
    }
}

/// Drains in this process: the next best.
fn keep(pipe: OwnedFd) {
    let drained = std::thread::Builder::new().name("drain".into()).spawn(move || {
        drop(io::copy(&mut std::fs::File::from(pipe), &mut io::sink()));
    });
    if let Err(error) = drained {
        tracing::warn!(%error, "left-over output could not be drained; its writers will see a broken pipe");
    }
}

fn start(program: &PathBuf) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    #[expect(clippy::disallowed_methods, reason = "the agent's own helper, not a call's program")]
    let mut child = std::process::Command::new(program)
        .args(["agent", "drain"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // it outlives the agent or is killed: either way somebody must take its exit status
    std::thread::Builder::new().name("drain-reaper".into()).spawn(move || {
        let _waited_for = WaitedFor::new(child.id());
        drop(child.wait());
    })?;
    Ok(ours)
}

fn send(socket: &OwnedFd, pipe: &OwnedFd) -> io::Result<()> {
    let fds = [pipe.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // a drainer that does not take it in is as good as none
    sendmsg(socket, &[IoSlice::new(b"p")], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// The whole of `podlink agent drain`: pipes come over stdin, are read and dropped.
///
/// # Errors
/// When stdin is not the socket of an agent.
pub fn drain_loop() -> io::Result<()> {
    super::raise_file_limit();
    // away from the terminal and the group of the agent, whose signals are not meant for it; a group leader cannot,
    // and is as far away already
    let _ = rustix::process::setsid();
    let socket = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    let mut socket = Some(socket);
    let mut pipes: Vec<OwnedFd> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while socket.is_some() || !pipes.is_empty() {
        let mut waiting: Vec<PollFd<'_>> = pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if let Some(socket) = &socket {
            waiting.push(PollFd::new(socket, PollFlags::IN));
        }
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waiting.iter().map(|entry| !entry.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        pipes.retain(|pipe| {
            !ready.next().unwrap_or(false)
                || match rustix::io::read(pipe, &mut buffer) {
                    Ok(count) => count > 0,
                    Err(error) => matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN),
                }
        });
        if ready.next().unwrap_or(false)
            && let Some(open) = &socket
        {
            match receive(open) {
                Ok(Some(mut received)) => pipes.append(&mut received),
                Ok(None) => socket = None,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The pipes of one message; `None` at the end.
fn receive(socket: &OwnedFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut pipes = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            pipes.extend(received);
        }
    }
    Ok((message.bytes > 0).then_some(pipes))
}
