//! A TCP proxy in front of an agent that cuts connections.

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

/// The proxy; it ends, and cuts what is left, when dropped.
#[derive(Debug)]
pub struct CuttingProxy {
    port: Port,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    cuts: AtomicUsize,
    over: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl CuttingProxy {
    /// Leads to `target`; of each connection, by its number, so many bytes of the agent's come through, or all.
    pub fn start(target: u16, limit: impl Fn(usize) -> Option<usize> + Send + 'static) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            while !shared.over.load(Ordering::SeqCst) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let Ok(agent) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                client.set_nonblocking(false).unwrap();
                for stream in [&client, &agent] {
                    stream.set_nodelay(true).unwrap();
                    shared.connections.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let (limit, state) = (limit(count), shared.clone());
                count += 1;
                let (from_client, to_agent) = (client.try_clone().unwrap(), agent.try_clone().unwrap());
                std::thread::spawn(move || pass(from_client, to_agent, None));
                std::thread::spawn(move || {
                    if pass(agent, client, limit) {
                        state.cuts.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { port, state, thread: Some(thread) }
    }

    /// Where it is reached.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number()).into()
    }

    /// Connections that it has cut.
    pub fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

/// Copies until an end or the limit, then closes both; says whether it was the limit.
fn pass(mut from: TcpStream, mut to: TcpStream, limit: Option<usize>) -> bool {
    let (mut buffer, mut left) = ([0; 16 * 1024], limit.unwrap_or(usize::MAX));
    while left > 0 {
        let room = left.min(buffer.len());
        let count = match from.read(&mut buffer[..room]) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        left -= count;
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
    left == 0
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        for stream in self.state.connections.lock().unwrap().iter() {
            drop(stream.shutdown(Shutdown::Both));
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
