//! Where lines go: through a bounded queue to a thread that writes them.
//!
//! A full disk or a pipe that nobody reads must not hold up a request: lines that find no room are dropped and counted,
//! and the count is written when there is room again.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use super::{
    line::{self, LogFormat},
    ring::Ring,
};

/// Lines that may wait to be written: some seconds of a very busy agent.
const QUEUE: usize = 8192;

/// Bytes of them, since a line may be long.
const QUEUE_BYTES: usize = 16 * 1024 * 1024;

/// How long the end of the process waits for the last lines.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Takes whole lines.
pub(super) trait Out: Send {
    /// Writes one line; after an error all of it counts as not written.
    fn line(&mut self, line: &[u8]) -> io::Result<()>;
}

/// A standard stream.
pub(super) struct Plain<W>(pub(super) W);

impl<W: io::Write + Send> Out for Plain<W> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.write_all(line)?;
        self.0.flush()
    }
}

enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The near end of the queue.
#[derive(Debug)]
pub(super) struct Sink {
    sender: SyncSender<Entry>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    ring: Option<Arc<Ring>>,
}

impl Sink {
    /// One whose lines a thread of this name writes; the newest are kept in `ring` as well.
    pub(super) fn start(name: &str, out: Box<dyn Out>, format: LogFormat, ring: Option<Arc<Ring>>) -> io::Result<Self> {
        let (sink, receiver) = Self::new(QUEUE, ring);
        let (waiting, lost) = (Arc::clone(&sink.waiting), Arc::clone(&sink.lost));
        let work = move || write_all(&receiver, out, format, &waiting, &lost);
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(sink)
    }

    fn new(queue: usize, ring: Option<Arc<Ring>>) -> (Self, Receiver<Entry>) {
        let (sender, receiver) = sync_channel(queue);
        (Self { sender, waiting: Arc::default(), lost: Arc::default(), ring }, receiver)
    }

    /// Hands a line over; never waits.
    pub(super) fn put(&self, line: Vec<u8>) {
        if let Some(ring) = &self.ring {
            ring.push(&line);
        }
        let len = line.len();
        let fits = self.waiting.fetch_add(len, Ordering::Relaxed) + len <= QUEUE_BYTES;
        if !fits || self.sender.try_send(Entry::Line(line)).is_err() {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was handed over is written, within reason.
    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.sender.try_send(Entry::Flush(done)).is_ok() {
            // an error means that it took too long or the thread is gone: there is nowhere to say so
            wait.recv_timeout(FLUSH_PATIENCE).ok();
        }
    }
}

fn write_all(
    receiver: &Receiver<Entry>,
    mut out: Box<dyn Out>,
    format: LogFormat,
    waiting: &AtomicUsize,
    lost: &AtomicU64,
) {
    let mut failing = false;
    for entry in receiver {
        match entry {
            Entry::Line(text) => {
                waiting.fetch_sub(text.len(), Ordering::Relaxed);
                let count = lost.swap(0, Ordering::Relaxed);
                // once, in front of the first line that can be written again
                let told = if count > 0 { out.line(&line::lost(format, count)) } else { Ok(()) };
                let (written, unwritten) = match told {
                    Ok(()) => (out.line(&text), 1),
                    Err(error) => (Err(error), count + 1),
                };
                if let Err(error) = &written {
                    lost.fetch_add(unwritten, Ordering::Relaxed);
                    if !failing {
                        say(error);
                    }
                }
                failing = written.is_err();
            }
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Whoever started the agent by hand, or reads what its service manager keeps, is to know; where that is the log itself,
/// it is said in vain.
fn say(error: &io::Error) {
    use io::Write as _;
    drop(writeln!(io::stderr(), "podlink: the log cannot be written: {error}; the lines are lost, and counted"));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes lines while it has room.
    struct Disk {
        written: Arc<Mutex<Vec<String>>>,
        full: std::ops::Range<usize>,
        tries: usize,
    }

    impl Out for Disk {
        fn line(&mut self, line: &[u8]) -> io::Result<()> {
            self.tries += 1;
            if self.full.contains(&self.tries) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        }
    }

    fn written(queue: usize, full: std::ops::Range<usize>, lines: &[&str]) -> Vec<String> {
        let (sink, receiver) = Sink::new(queue, None);
        for line in lines {
            sink.put(line.as_bytes().to_owned());
        }
        let (waiting, lost) = (Arc::clone(&sink.waiting), Arc::clone(&sink.lost));
        drop(sink);
        let written: Arc<Mutex<Vec<String>>> = Arc::default();
        let disk = Disk { written: Arc::clone(&written), full, tries: 0 };
        write_all(&receiver, Box::new(disk), LogFormat::Json, &waiting, &lost);
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
        std::mem::take(&mut *written.lock().unwrap())
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_told() {
        let written = written(2, 0..0, &["a\n", "b\n", "c\n", "d\n"]);
        assert_eq!(written[1..], ["a\n", "b\n"]);
        let told: serde_json::Value = serde_json::from_str(&written[0]).unwrap();
        assert_eq!(told["lost_log_lines"], 2);
    }

    #[test]
    fn lines_that_a_full_disk_did_not_take_are_told_once() {
        let written = written(9, 2..5, &["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"]);
        assert_eq!((written[0].as_str(), &written[2..]), ("a\n", &["e\n".to_owned(), "f\n".to_owned()][..]));
        let told: serde_json::Value = serde_json::from_str(&written[1]).unwrap();
        assert_eq!(told["lost_log_lines"], 3);
    }
}
