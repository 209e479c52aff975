//! The sources: the engine, the agent over the wire, a local agent's files.

use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    LogOrigin, LogsRequest, LogsSettings,
    feed::{Feed, Unheard},
    files,
    merge::Splitter,
};
use crate::{
    host::{
        AgentClient, EngineKind, Error, ErrorKind, Pod, Result,
        client::GuestLogRequest,
        engine::{self, ContainerState},
    },
    protocol::GuestLog,
};

/// One source.
pub(super) struct Source<'a> {
    pub(super) pod: &'a Pod,
    pub(super) request: &'a LogsRequest,
    pub(super) settings: &'a LogsSettings,
    pub(super) feed: Feed,
    /// The pod has ended: what follows it ends too.
    pub(super) ended: &'a watch::Sender<bool>,
}

impl Source<'_> {
    /// Hands on all that there is, and, where it is to be followed, all that comes.
    pub(super) async fn read(mut self) {
        let is_local = self.pod.settings().engine == EngineKind::Local;
        let read = match self.feed.origin {
            LogOrigin::Container if is_local => Err(self.none("container")),
            LogOrigin::Install if is_local => Err(self.none("installation")),
            LogOrigin::Agent if is_local => files::read(self.pod, self.request, self.settings, &mut self.feed).await,
            LogOrigin::Container => {
                let read = self.container().await;
                if self.request.follow && read.is_ok() {
                    self.ended.send_replace(true);
                }
                read
            }
            LogOrigin::Agent => self.guest(GuestLog::Agent).await,
            LogOrigin::Install => self.guest(GuestLog::Install).await,
        };
        if let Err(error) = read {
            self.feed.fails(error).await;
        }
    }

    fn none(&self, what: &str) -> Error {
        let detail = format!("the pod {} is local: it has no log of a {what}", self.pod.name());
        Error::new(ErrorKind::NotFound, detail).with_hint("ask for `--source agent`")
    }

    async fn container(&mut self) -> Result<()> {
        let Self { pod, request, settings, feed, .. } = self;
        let invocation = engine::container_log(pod, request.follow, request.tail, &settings.engine).await?;
        feed.reads().await;
        let mut splitters = [Splitter::default(), Splitter::default()];
        invocation
            .stream(async |is_stderr, bytes: &[u8]| {
                for line in splitters[usize::from(is_stderr)].feed(bytes) {
                    let (time, text) = stamped(line);
                    if feed.line(time, text).await.is_err() {
                        break;
                    }
                }
            })
            .await?;
        for line in splitters.iter_mut().filter_map(Splitter::finish) {
            let (time, text) = stamped(line);
            if feed.line(time, text).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Over the wire, again and again where it is followed: the agent starts later than its container.
    async fn guest(&mut self, log: GuestLog) -> Result<()> {
        let client = AgentClient::for_pod(self.pod, self.settings.client.clone())?;
        let mut ended = self.ended.subscribe();
        let mut again = false;
        loop {
            let read = tokio::select! {
                read = self.once(&client, log, again) => read,
                _ = ended.wait_for(|ended| *ended) => return Ok(()),
            };
            match read {
                Ok(Err(Unheard)) => return Ok(()),
                read if !self.request.follow => return read.map(|_| ()),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                    return Err(error);
                }
                // one that went away comes again, or the pod has ended
                Err(error) if !again => self.feed.fails(error).await,
                _ => {}
            }
            again |= self.feed.any;
            tokio::select! {
                () = tokio::time::sleep(self.settings.retry) => {}
                _ = ended.wait_for(|ended| *ended) => return Ok(()),
            }
            let state = engine::state(self.pod).await?;
            if !matches!(state, ContainerState::Running | ContainerState::Paused) {
                return Ok(());
            }
        }
    }

    /// One connection; after another one only what is newer than its last line.
    async fn once(&mut self, client: &AgentClient, log: GuestLog, again: bool) -> Result<Result<(), Unheard>> {
        let seen = self.feed.last.filter(|_| again);
        let request = GuestLogRequest {
            log,
            follow: self.request.follow,
            // lines that tell no time cannot be told from those that have come: only new ones then
            tail: if again { seen.is_none().then_some(0) } else { self.request.tail },
            since: seen.or(self.request.since),
        };
        let mut stream = client.guest_log(request).await?;
        self.feed.reads().await;
        let mut old = seen.is_some();
        while let Some(line) = stream.next().await? {
            let time = line.time.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
            if let Some(time) = time {
                old = seen.is_some_and(|seen| time <= seen);
            }
            if !old && self.feed.line(time, line.text).await.is_err() {
                return Ok(Err(Unheard));
            }
        }
        Ok(Ok(()))
    }
}

/// The engine's time stamp, and the line behind it.
fn stamped(line: String) -> (Option<Timestamp>, String) {
    let (stamp, rest) = line.split_once(' ').unwrap_or((&line, ""));
    match stamp.parse() {
        Ok(time) => (Some(time), rest.to_owned()),
        Err(_) => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_both_engines_are_read() {
        for (line, text) in [
            ("2026-11-29T14:00:00.5Z hello  you", "hello  you"),
            ("2026-11-29T15:00:00.500000000+01:00 x", "x"),
            ("2026-11-29T14:00:00.5Z ", ""),
            ("2026-11-29T14:00:00.5Z", ""),
        ] {
            let expected = "2026-11-29T14:00:00.5Z".parse().unwrap();
            assert_eq!(stamped(line.to_owned()), (Some(expected), text.to_owned()));
        }
        assert_eq!(stamped("no stamp".to_owned()), (None, "no stamp".to_owned()));
    }
}
