//! `GET /logs`: the agent's log and the installation's, as they lie on disk or in memory, and what is added to them.

use std::{convert::Infallible, io, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream::unfold;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    GuestError,
    connection::Patient,
    extract::asked,
    log::{FileReader, Log, Ring, Step},
    state::AppState,
};
use crate::protocol::{ErrorCode, GuestLog, LogLine, MEDIA_NDJSON};

/// Between two looks at a file that grows.
const POLL: Duration = Duration::from_millis(200);

/// Lines of memory that go out at one time.
const BATCH: usize = 256;

/// A sign of life between lines.
const ALIVE: &[u8] = b"\n";

/// What `GET /logs` may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogsQuery {
    source: GuestLog,
    follow: bool,
    tail: Option<u64>,
    since: Option<String>,
}

/// `GET /logs`.
pub(super) async fn get(
    State(state): State<AppState>,
    query: Result<Query<LogsQuery>, QueryRejection>,
) -> Result<Response, GuestError> {
    let query = asked(query)?;
    let since = query.since.as_deref().map(str::parse::<Timestamp>).transpose().map_err(|error| {
        GuestError::new(ErrorCode::BadRequest, format!("since is not a time: {error}"))
            .hint("give it as RFC 3339 has it, such as 2026-11-29T14:00:00Z")
    })?;
    let log = match query.source {
        GuestLog::Agent => state.config().log.as_ref().map_or(Log::None, |log| log.0.clone()),
        GuestLog::Install => state.config().install_log.clone().map_or(Log::None, Log::File),
    };
    let Some(place) = state.log_readers().place() else {
        return Err(GuestError::new(ErrorCode::QueueFull, "as many read the logs as this agent serves")
            .hint("end one of them, and try again")
            .retry_after(1));
    };
    let from = match log {
        Log::None => {
            let what = format!("this agent knows of no {} log", query.source.as_str());
            let hint = "start it with --install-log and the file that the guest's installation writes";
            return Err(GuestError::new(ErrorCode::NotFound, what).hint(hint));
        }
        Log::Ring(ring) => From::Ring { next: ring.start(query.tail), ring },
        Log::File(path) => From::File(Box::new(opened(path, query.tail).await?)),
    };
    if let From::File(reader) = &from
        && !reader.exists()
        && !query.follow
    {
        return Err(GuestError::new(ErrorCode::NotFound, format!("there is no {} log yet", query.source.as_str()))
            .hint("with follow=true it is waited for"));
    }
    let sending = Sending {
        from: Some(from),
        follow: query.follow,
        left: query.tail.filter(|_| !query.follow),
        since,
        keep_alive: state.calls().settings().stream_keep_alive,
        closing: state.log_readers().closing(),
        skipping: since.is_some(),
        _place: place,
    };
    let stream = unfold(sending, async |mut sending| {
        let bytes = sending.next().await?;
        Some((Ok::<_, Infallible>(bytes), sending))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_NDJSON));
    response.extensions_mut().insert(Patient);
    Ok(response)
}

async fn opened(path: PathBuf, tail: Option<u64>) -> Result<FileReader, GuestError> {
    let opened = tokio::task::spawn_blocking(move || FileReader::start(path, tail)).await;
    opened.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
        GuestError::new(ErrorCode::InternalError, "the log cannot be read")
            .hint("the agent's log tells more, under this request's id")
            .caused_by(error)
    })
}

/// Where lines come from.
enum From {
    File(Box<FileReader>),
    Ring { ring: Arc<Ring>, next: u64 },
}

struct Sending {
    /// `None` once it has ended.
    from: Option<From>,
    follow: bool,
    /// How many more lines there may be: what is logged meanwhile is not part of what was asked for.
    left: Option<u64>,
    since: Option<Timestamp>,
    keep_alive: Duration,
    closing: watch::Receiver<bool>,
    /// The last line that told a time was too old.
    skipping: bool,
    _place: OwnedSemaphorePermit,
}

impl Sending {
    /// What goes out next; `None` at the end. Nothing is read before it is asked for.
    async fn next(&mut self) -> Option<Bytes> {
        let mut idle = Duration::ZERO;
        loop {
            if self.left == Some(0) {
                return None;
            }
            let closing = *self.closing.borrow();
            let (step, from) = step(self.from.take()?).await;
            self.from = from;
            let bytes = match step {
                Ok(Step::Lines(lines)) => self.lines(lines),
                Ok(Step::Missed) => {
                    let text = "lines are missing here: they were given up before they were read".to_owned();
                    json(&LogLine { time: None, text, missed: true })
                }
                Ok(Step::CaughtUp) if self.follow && !closing => {
                    let begun = tokio::time::Instant::now();
                    self.wait().await;
                    idle += begun.elapsed();
                    if idle >= self.keep_alive {
                        return Some(Bytes::from_static(ALIVE));
                    }
                    continue;
                }
                Ok(Step::CaughtUp) => {
                    let last = match self.from.take()? {
                        From::File(mut reader) => reader.finish()?,
                        From::Ring { .. } => return None,
                    };
                    self.lines(vec![last])
                }
                Err(error) => {
                    tracing::warn!(%error, "a log cannot be read any further");
                    return None;
                }
            };
            if !bytes.is_empty() {
                return Some(bytes.into());
            }
        }
    }

    /// Until there may be more.
    async fn wait(&mut self) {
        let comes = async {
            match &self.from {
                Some(From::Ring { ring, next }) => ring.comes(*next).await,
                _ => tokio::time::sleep(POLL).await,
            }
        };
        tokio::select! {
            () = comes => {}
            _ = self.closing.wait_for(|closing| *closing) => {}
            () = tokio::time::sleep(self.keep_alive) => {}
        }
    }

    /// The lines that were asked for. One that tells no time is as old as the one before it.
    fn lines(&mut self, lines: Vec<String>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in lines {
            match &mut self.left {
                Some(0) => break,
                Some(left) => *left -= 1,
                None => {}
            }
            let time = time_of(&text);
            if let (Some(since), Some(time)) = (self.since, time) {
                self.skipping = time < since;
            }
            if !self.skipping {
                bytes.extend(json(&LogLine { time: time.map(|time| time.to_string()), text, missed: false }));
            }
        }
        bytes
    }
}

/// One look; `None` where the reader is lost.
async fn step(from: From) -> (io::Result<Step>, Option<From>) {
    match from {
        From::File(mut reader) => {
            let looked = tokio::task::spawn_blocking(move || (reader.step(), reader)).await;
            match looked {
                Ok((step, reader)) => (step, Some(From::File(reader))),
                Err(error) => (Err(io::Error::other(error)), None),
            }
        }
        From::Ring { ring, next } => {
            let mut lines = Vec::new();
            let mut at = next;
            while lines.len() < BATCH
                && let Some((number, line)) = ring.line(at)
            {
                if number > at {
                    if lines.is_empty() {
                        return (Ok(Step::Missed), Some(From::Ring { ring, next: number }));
                    }
                    break;
                }
                lines.push((*line).to_owned());
                at += 1;
            }
            let step = if lines.is_empty() { Step::CaughtUp } else { Step::Lines(lines) };
            (Ok(step), Some(From::Ring { ring, next: at }))
        }
    }
}

/// When a line was said, by its own word: it begins with a time, or is the agent's JSON.
fn time_of(line: &str) -> Option<Timestamp> {
    let text = line.strip_prefix(r#"{"timestamp":""#).unwrap_or(line).trim_start_matches('[');
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-:.+".contains(c))).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// A line of its own. A string is always JSON.
fn json(line: &LogLine) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_their_time() {
        for line in [
            "2026-11-29T14:00:00.5Z  INFO podlink: x",
            r#"{"timestamp":"2026-11-29T14:00:00.5Z","level":"INFO"}"#,
            "[2026-11-29T15:00:00.5+01:00] step 3",
        ] {
            assert_eq!(time_of(line), Some("2026-11-29T14:00:00.5Z".parse().unwrap()), "{line}");
        }
        for line in ["", "step 3", "{}", "2026", "14:00:00 x", "é"] {
            assert_eq!(time_of(line), None, "{line}");
        }
    }
}
