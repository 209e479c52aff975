//! A call's output as the body of an answer: Docker's frames, or server-sent events.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::stream::unfold;

use super::{
    calls::{Finished, Form, Joined},
    connection::Patient,
    process::{Chunk, Reader},
};
use crate::protocol::{
    FrameKind, HEADER_PROCESS_ID, MEDIA_EVENTS, MEDIA_MULTIPLEXED, Running, Started, frame_header, stream_event,
};

/// A comment among events.
const ALIVE: &[u8] = b": alive\n\n";

/// In which form the caller wants a stream of output, by its `Accept` headers; `None` where it wants JSON.
///
/// Of several forms the one with the highest weight wins, and JSON where none is named.
pub(super) fn wanted(headers: &HeaderMap) -> Option<Form> {
    let mut best: (f32, Option<Form>) = (0.0, None);
    let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let form = match name {
            _ if name.eq_ignore_ascii_case(MEDIA_MULTIPLEXED) => Some(Form::Frames),
            _ if name.eq_ignore_ascii_case(MEDIA_EVENTS) => Some(Form::Events),
            _ if name.eq_ignore_ascii_case("application/json") => None,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        if weight > best.0 {
            best = (weight, form);
        }
    }
    best.1
}

/// How a stream is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// In which form.
    pub(super) form: Form,
    /// Whether to wait for what is still to come.
    pub(super) follow: bool,
    /// The longest silence.
    pub(super) keep_alive: Duration,
}

/// The answer: what `reader` has, then the call's end. It holds `joined` until it has been sent, or given up.
pub(super) fn answer(joined: Joined, reader: Reader, manner: Manner) -> Response {
    let process_id = HeaderValue::from_str(joined.process_id()).ok();
    let media = if manner.form == Form::Events { MEDIA_EVENTS } else { MEDIA_MULTIPLEXED };
    let state = Some(Sending { joined, reader, manner, begun: false });
    let stream = unfold(state, async |state| {
        let mut sending = state?;
        let (bytes, is_last) = sending.next().await;
        Some((Ok::<_, Infallible>(bytes), (!is_last).then_some(sending)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(process_id) = process_id {
        headers.insert(HEADER_PROCESS_ID, process_id);
    }
    response.extensions_mut().insert(Patient);
    response
}

struct Sending {
    joined: Joined,
    reader: Reader,
    manner: Manner,
    begun: bool,
}

impl Sending {
    /// What goes out next, and whether it is the last.
    async fn next(&mut self) -> (Bytes, bool) {
        let events = self.manner.form == Form::Events;
        if events && !self.begun {
            // a call that is queued starts later, or never
            let limit = if self.manner.follow { self.manner.keep_alive } else { Duration::ZERO };
            match tokio::time::timeout(limit, self.joined.started()).await {
                Ok(Ok(start)) => {
                    self.begun = true;
                    let started = Started { process_id: self.joined.process_id().to_owned(), pid: Some(start.pid) };
                    return (event(stream_event::STARTED, &json(&started)), false);
                }
                Ok(Err(_)) => self.begun = true,
                Err(_) if self.manner.follow => return (Bytes::from_static(ALIVE), false),
                Err(_) => {}
            }
        }
        let chunk = if self.manner.follow {
            match tokio::time::timeout(self.manner.keep_alive, self.reader.next()).await {
                Ok(chunk) => chunk,
                Err(_) if events => return (Bytes::from_static(ALIVE), false),
                Err(_) => return (frame(FrameKind::Stdout, b""), false),
            }
        } else {
            match self.reader.take() {
                Some(chunk) => chunk,
                None if self.joined.outcome().is_some() => Chunk::End,
                None => {
                    let running = Running { running: true, offset: self.reader.offset() };
                    return (last(events, &json(&running)), true);
                }
            }
        };
        match chunk {
            Chunk::Output { kind, bytes } if events => {
                let name = if kind == FrameKind::Stderr { stream_event::STDERR } else { stream_event::STDOUT };
                (event(name, BASE64_STANDARD.encode(&bytes).as_bytes()), false)
            }
            Chunk::Output { kind, bytes } => (frame(kind, &bytes), false),
            Chunk::Gap(gap) if events => (event(stream_event::GAP, &json(&gap)), false),
            Chunk::Gap(gap) => (frame(FrameKind::Gap, &json(&gap)), false),
            Chunk::End => {
                let finished: Finished = self.joined.finished().await;
                (last(events, finished.body()), true)
            }
        }
    }
}

/// One line of data: neither base64 nor this JSON holds a line break.
fn event(name: &str, data: &[u8]) -> Bytes {
    [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"].concat().into()
}

fn frame(kind: FrameKind, payload: &[u8]) -> Bytes {
    [&frame_header(kind, payload.len()), payload].concat().into()
}

fn last(events: bool, body: &[u8]) -> Bytes {
    if events { event(stream_event::EXIT, body) } else { frame(FrameKind::End, body) }
}

/// These types hold nothing that JSON cannot.
fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_chosen_by_weight() {
        let wants = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            wanted(&headers)
        };
        assert_eq!(wants(&[]), None);
        assert_eq!(wants(&["*/*"]), None);
        assert_eq!(wants(&["application/json"]), None);
        assert_eq!(wants(&["text/html"]), None);
        assert_eq!(wants(&["text/event-stream"]), Some(Form::Events));
        assert_eq!(wants(&["Application/VND.docker.multiplexed-stream; x=y"]), Some(Form::Frames));
        assert_eq!(wants(&["application/json;q=0.5, text/event-stream;q=0.9"]), Some(Form::Events));
        assert_eq!(wants(&["application/json", "text/event-stream;q=0.9"]), None);
        assert_eq!(wants(&["text/event-stream;q=0"]), None);
    }
}
