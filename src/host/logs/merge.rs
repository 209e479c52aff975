//! Several sources become one, in the order of time, with a bounded look ahead.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, sleep_until},
};

use super::LogEntry;

/// The merge.
#[derive(Debug)]
pub(super) struct Merge {
    inputs: Vec<Input>,
    /// How long a line waits for an older one of a source that says nothing; for ever where absent.
    look_ahead: Option<Duration>,
}

#[derive(Debug)]
struct Input {
    lines: Receiver<LogEntry>,
    /// Its next line, and since when it is there.
    head: Option<(LogEntry, Instant)>,
    ended: bool,
}

impl Merge {
    pub(super) fn new(inputs: Vec<Receiver<LogEntry>>, look_ahead: Option<Duration>) -> Self {
        let input = |lines| Input { lines, head: None, ended: false };
        Self { inputs: inputs.into_iter().map(input).collect(), look_ahead }
    }

    /// The next line of all; `None` once every source has ended. The call to it can be dropped without loss.
    pub(super) async fn next(&mut self) -> Option<LogEntry> {
        loop {
            poll_fn(|cx| Poll::Ready(self.fill(cx))).await;
            let since = self.inputs.iter().filter_map(|input| input.head.as_ref().map(|(_, since)| *since)).min();
            let waits = self.inputs.iter().any(|input| input.head.is_none() && !input.ended);
            let deadline = since.and_then(|since| Some(since + self.look_ahead?));
            if !waits || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return self.oldest();
            }
            let more = poll_fn(|cx| if self.fill(cx) { Poll::Ready(()) } else { Poll::Pending });
            match deadline {
                Some(deadline) => tokio::select! {
                    () = more => {}
                    () = sleep_until(deadline) => {}
                },
                None => more.await,
            }
        }
    }

    /// Takes what is there; whether anything was.
    fn fill(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        for input in self.inputs.iter_mut().filter(|input| input.head.is_none() && !input.ended) {
            match input.lines.poll_recv(cx) {
                Poll::Ready(Some(entry)) => input.head = Some((entry, Instant::now())),
                Poll::Ready(None) => input.ended = true,
                Poll::Pending => continue,
            }
            any = true;
        }
        any
    }

    /// Of one instant the first source's; what tells no time has nothing to wait for.
    fn oldest(&mut self) -> Option<LogEntry> {
        let heads = self.inputs.iter_mut().filter(|input| input.head.is_some());
        let first = heads.min_by_key(|input| input.head.as_ref().map(|(entry, _)| entry.time))?;
        first.head.take().map(|(entry, _)| entry)
    }
}

/// Makes lines of pieces, none of them longer than is good for memory.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    line: Vec<u8>,
    more: usize,
}

impl Splitter {
    /// Most bytes of a line.
    const LONGEST: usize = 256 << 10;

    /// The lines that end in this piece.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> VecDeque<String> {
        let mut lines = VecDeque::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            lines.push_back(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
        lines
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (Self::LONGEST - self.line.len()).min(bytes.len());
        self.line.extend_from_slice(&bytes[..room]);
        self.more += bytes.len() - room;
    }

    fn take(&mut self) -> String {
        let (line, more) = (std::mem::take(&mut self.line), std::mem::take(&mut self.more));
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line));
        if more == 0 { text.into_owned() } else { format!("{text}… ({more} bytes more)") }
    }

    /// A last line without an end.
    pub(super) fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::{super::LogOrigin, *};

    fn entry(origin: LogOrigin, second: Option<i64>) -> LogEntry {
        let time = second.map(|second| jiff::Timestamp::from_second(second).unwrap());
        LogEntry { time, origin, text: String::new() }
    }

    async fn all(mut merge: Merge) -> Vec<(LogOrigin, Option<i64>)> {
        let mut seen = Vec::new();
        while let Some(entry) = merge.next().await {
            seen.push((entry.origin, entry.time.map(jiff::Timestamp::as_second)));
        }
        seen
    }

    #[tokio::test]
    async fn what_is_there_comes_in_the_order_of_time_and_each_source_in_its_own() {
        use LogOrigin::{Agent, Container, Install};
        let (mut senders, mut inputs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (sender, input) = mpsc::channel(9);
            senders.push(sender);
            inputs.push(input);
        }
        let said = [
            (0, entry(Container, Some(3))),
            (0, entry(Container, Some(5))),
            (0, entry(Container, Some(4))),
            (1, entry(Agent, Some(1))),
            (1, entry(Agent, Some(5))),
            (2, entry(Install, None)),
            (2, entry(Install, Some(9))),
        ];
        for (index, entry) in said {
            senders[index].send(entry).await.unwrap();
        }
        drop(senders);
        let order = [
            (Install, None),
            (Agent, Some(1)),
            (Container, Some(3)),
            (Container, Some(5)),
            (Container, Some(4)),
            (Agent, Some(5)),
            (Install, Some(9)),
        ];
        assert_eq!(all(Merge::new(inputs, None)).await, order);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_source_holds_up_the_others_only_so_long() {
        let (first, input) = mpsc::channel(9);
        let (second, other) = mpsc::channel(9);
        let mut merge = Merge::new(vec![input, other], Some(Duration::from_millis(300)));
        let begun = Instant::now();
        first.send(entry(LogOrigin::Container, Some(2))).await.unwrap();
        let late = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            second.send(entry(LogOrigin::Agent, Some(1))).await.unwrap();
        };
        let (next, ()) = tokio::join!(merge.next(), late);
        assert_eq!(next.unwrap().origin, LogOrigin::Agent, "older, and in time");
        assert_eq!(merge.next().await.unwrap().origin, LogOrigin::Container);
        assert_eq!(begun.elapsed().as_millis(), 300);
        drop((first, second));
        assert_eq!(merge.next().await, None);
    }

    #[test]
    fn pieces_become_lines() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed(b"one\r\ntw"), ["one"]);
        assert_eq!(splitter.feed(b"o\n\nthr"), ["two", ""]);
        assert_eq!(splitter.finish().as_deref(), Some("thr"));
        assert_eq!(splitter.finish(), None);
        assert!(splitter.feed(&vec![b'x'; Splitter::LONGEST + 5]).is_empty());
        assert!(splitter.feed(b"yz\n")[0].ends_with("x… (7 bytes more)"));
    }
}
