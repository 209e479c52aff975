//! A link to an agent that can be cut, held and led elsewhere.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::Port;

/// The link; it is cut for good when dropped.
#[derive(Debug)]
pub struct Link {
    port: Port,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: AtomicUsize,
    /// Bytes that still come through from the agent.
    budget: AtomicUsize,
    up: AtomicBool,
    held: AtomicBool,
    gone: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// One that leads to this port.
    pub fn to(port: u16) -> Self {
        let own = Port::reserve();
        let listener = TcpListener::bind(("127.0.0.1", own.number())).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State {
            target: AtomicUsize::new(port.into()),
            budget: AtomicUsize::new(usize::MAX),
            up: AtomicBool::new(true),
            held: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            while !shared.gone.load(Ordering::SeqCst) {
                let Ok((near, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                near.set_nonblocking(false).unwrap();
                if !shared.up.load(Ordering::SeqCst) {
                    drop(near.shutdown(Shutdown::Both));
                    continue;
                }
                let port = u16::try_from(shared.target.load(Ordering::SeqCst)).unwrap();
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                shared.streams.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (from_near, to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (up, down) = (shared.clone(), shared.clone());
                std::thread::spawn(move || carry(from_near, to_far, &up, false));
                std::thread::spawn(move || carry(far, near, &down, true));
            }
        });
        Self { port: own, state }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number()).into()
    }

    /// Cuts it once so many more bytes have come through, and keeps it cut.
    pub fn cut_after(&self, bytes: usize) {
        self.state.budget.store(bytes, Ordering::SeqCst);
    }

    /// Cuts it now, and keeps it cut.
    pub fn cut(&self) {
        self.state.cut();
    }

    pub fn is_cut(&self) -> bool {
        !self.state.up.load(Ordering::SeqCst)
    }

    /// Makes it good again.
    pub fn mend(&self) {
        self.state.budget.store(usize::MAX, Ordering::SeqCst);
        self.state.up.store(true, Ordering::SeqCst);
    }

    /// Lets nothing through that comes from the agent, and cuts nothing.
    pub fn hold(&self, held: bool) {
        self.state.held.store(held, Ordering::SeqCst);
    }

    /// Leads new connections to another port.
    pub fn lead_to(&self, port: u16) {
        self.state.target.store(port.into(), Ordering::SeqCst);
    }
}

impl State {
    fn cut(&self) {
        self.up.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::SeqCst);
        self.state.cut();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &State, counted: bool) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer) {
        while counted && state.held.load(Ordering::SeqCst) && !state.gone.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let budget = if counted { state.budget.load(Ordering::SeqCst) } else { usize::MAX };
        let passes = count.min(budget);
        if count == 0 || to.write_all(&buffer[..passes]).is_err() {
            break;
        }
        if budget != usize::MAX {
            state.budget.store(budget - passes, Ordering::SeqCst);
            if passes < count {
                state.cut();
            }
        }
    }
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}
