//! What asks the agent to end: its console, the end of the session, and an event of its own that others set.
//!
//! A process without a console gets no Ctrl-C, and there is nothing like SIGTERM. So each agent has a named event, which
//! its own account, SYSTEM and the administrators may set: [`ask_to_stop`] does.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; a
//! handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "named events have no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    signal::windows::{self, CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown},
    sync::mpsc,
};
use windows_sys::Win32::{
    Foundation::{ERROR_ALREADY_EXISTS, WAIT_OBJECT_0},
    System::Threading::{CreateEventW, EVENT_MODIFY_STATE, INFINITE, OpenEventW, SetEvent, WaitForSingleObject},
};

use crate::{guest::signals::Signal, token::Privacy};

/// Requests that wait to be heard: more than three mean nothing.
const MOST_WAITING: usize = 8;

/// All of it, from the moment of listening on.
#[derive(Debug)]
pub(in crate::guest) struct Signals {
    interrupt: CtrlC,
    brk: CtrlBreak,
    close: CtrlClose,
    log_off: CtrlLogoff,
    shutdown: CtrlShutdown,
    asked: mpsc::Receiver<()>,
    _stop_event: Option<StopEvent>,
}

impl Signals {
    pub(in crate::guest) fn listen() -> io::Result<Self> {
        let (sender, asked) = mpsc::channel(MOST_WAITING);
        let stop_event = StopEvent::listen(sender)
            .inspect_err(|error| tracing::warn!(%error, "the agent cannot be asked to end but by its console"))
            .ok();
        Ok(Self {
            interrupt: windows::ctrl_c()?,
            brk: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
            log_off: windows::ctrl_logoff()?,
            shutdown: windows::ctrl_shutdown()?,
            asked,
            _stop_event: stop_event,
        })
    }

    pub(in crate::guest) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.brk.recv() => Signal::Terminate,
            Some(()) = self.close.recv() => Signal::Terminate,
            Some(()) = self.log_off.recv() => Signal::Terminate,
            Some(()) = self.shutdown.recv() => Signal::Terminate,
            Some(()) = self.asked.recv() => Signal::Terminate,
            else => std::future::pending().await, // the runtime is going down
        }
    }
}

/// The name is the same for all sessions: a service's agent and a user's can ask each other.
fn name_of(pid: u32) -> Vec<u16> {
    format!("Global\\podlink-agent-stop-{pid}\0").encode_utf16().collect()
}

/// The event, and the thread that waits for it.
#[derive(Debug)]
struct StopEvent {
    event: Arc<OwnedHandle>,
    is_over: Arc<AtomicBool>,
}

impl StopEvent {
    fn listen(asked: mpsc::Sender<()>) -> io::Result<Self> {
        let (name, privacy) = (name_of(std::process::id()), Privacy::of_object()?);
        let attributes = privacy.attributes();
        // SAFETY: the name ends with a zero, and the attributes' descriptor lives until the end of this function.
        let event = unsafe { CreateEventW(&raw const attributes, 0, 0, name.as_ptr()) };
        let error = io::Error::last_os_error();
        if event.is_null() {
            return Err(error);
        }
        // SAFETY: the handle is new, and nobody else's.
        let event = unsafe { OwnedHandle::from_raw_handle(event) };
        if error.raw_os_error() == Some(ERROR_ALREADY_EXISTS.cast_signed()) {
            // theirs may let anybody set it
            return Err(io::Error::other("another process holds the event that it would be asked by"));
        }
        let listening = Self { event: Arc::new(event), is_over: Arc::default() };
        let (event, is_over) = (Arc::clone(&listening.event), Arc::clone(&listening.is_over));
        std::thread::Builder::new().name("stop-event".into()).spawn(move || {
            loop {
                // SAFETY: the handle is open for as long as this thread holds it.
                let came = unsafe { WaitForSingleObject(event.as_raw_handle(), INFINITE) };
                if came != WAIT_OBJECT_0 || is_over.load(Ordering::SeqCst) {
                    return;
                }
                // those beyond the bound say nothing new
                let _ = asked.try_send(());
            }
        })?;
        Ok(listening)
    }
}

impl Drop for StopEvent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // SAFETY: the handle is open.
        unsafe { SetEvent(self.event.as_raw_handle()) };
    }
}

/// Asks the agent with this process number to end, which it does once its calls have.
///
/// # Errors
/// When there is no such agent, or it is not ours to ask.
pub fn ask_to_stop(pid: u32) -> io::Result<()> {
    let name = name_of(pid);
    // SAFETY: the name ends with a zero.
    let event = unsafe { OpenEventW(EVENT_MODIFY_STATE, 0, name.as_ptr()) };
    if event.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    let event = unsafe { OwnedHandle::from_raw_handle(event) };
    // SAFETY: the handle is open across the call.
    if unsafe { SetEvent(event.as_raw_handle()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_can_be_asked_to_end() {
        let own = std::process::id();
        let mut signals = Signals::listen().unwrap();
        // the event has one owner; another listener does without
        drop(Signals::listen().unwrap());
        for _ in 0..3 {
            ask_to_stop(own).unwrap();
            let heard = tokio::time::timeout(std::time::Duration::from_secs(20), signals.next()).await;
            assert_eq!(heard.unwrap(), Signal::Terminate);
        }
        assert_eq!(ask_to_stop(0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
