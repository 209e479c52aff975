//! Docker's multiplexed stream: an 8-byte header, then the payload.
//!
//! `[stream, 0, 0, 0, length as u32 big-endian]`, as the Docker Engine API describes it for `attach`. podlink sends
//! streams 1 and 2, and two of its own: 3, the one last frame, and 4, a range that is missing.

use std::{error::Error, fmt};

/// The media type of the format, which Docker's API gives it.
pub const MEDIA_MULTIPLEXED: &str = "application/vnd.docker.multiplexed-stream";
/// The media type of server-sent events, the other streamed form.
pub const MEDIA_EVENTS: &str = "text/event-stream";

/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 8;

/// Most bytes of a frame's payload that [`FrameDecoder`] takes: what is larger is no frame but something else.
///
/// podlink's own frames of output stay at 64 KiB and below.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

/// What a frame's payload belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Standard output. An empty one only says that the agent is alive.
    Stdout,
    /// Standard error.
    Stderr,
    /// The last frame: a [`StreamEnd`](super::StreamEnd) as JSON.
    End,
    /// Output that is gone: a [`Gap`](super::Gap) as JSON.
    Gap,
}

impl FrameKind {
    /// The stream's number in the header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::End => 3,
            Self::Gap => 4,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::End),
            4 => Some(Self::Gap),
            _ => None,
        }
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameKind,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// The header of a frame whose payload has `len` bytes.
///
/// # Panics
/// When `len` is over what 32 bits say; no caller frames more than [`MAX_FRAME`] at once.
pub fn frame_header(kind: FrameKind, len: usize) -> [u8; FRAME_HEADER] {
    #[expect(clippy::expect_used, reason = "callers frame chunks of their own buffers, far below 4 GiB")]
    let len = u32::try_from(len).expect("a frame's payload is below 4 GiB");
    let [a, b, c, d] = len.to_be_bytes();
    [kind.number(), 0, 0, 0, a, b, c, d]
}

/// Bytes that are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The header names no stream of this format, or its three zero bytes are not zero.
    NotAHeader([u8; FRAME_HEADER]),
    /// The payload would be over [`MAX_FRAME`].
    TooLarge(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAHeader(bytes) => write!(f, "{bytes:02x?} does not begin a frame"),
            Self::TooLarge(len) => write!(f, "a frame of {len} bytes is over the limit of {MAX_FRAME}"),
        }
    }
}

impl Error for FrameError {}

/// What a header says: whose payload follows, and how long it is.
fn read_header(header: [u8; FRAME_HEADER]) -> Result<(FrameKind, usize), FrameError> {
    let [number, 0, 0, 0, a, b, c, d] = header else { return Err(FrameError::NotAHeader(header)) };
    let Some(kind) = FrameKind::of(number) else { return Err(FrameError::NotAHeader(header)) };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len > MAX_FRAME { Err(FrameError::TooLarge(len)) } else { Ok((kind, len)) }
}

/// Puts frames together from whatever pieces the bytes come in.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// What of `buffer` has been handed out.
    used: usize,
}

impl FrameDecoder {
    /// Takes in more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
        } else if self.used > self.buffer.len() / 2 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if one is there.
    ///
    /// # Errors
    /// When the bytes are no frame; nothing after them can be read either.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.used..];
        let Some(header) = rest.first_chunk::<FRAME_HEADER>() else { return Ok(None) };
        let (kind, len) = read_header(*header)?;
        let Some(payload) = rest.get(FRAME_HEADER..FRAME_HEADER + len) else { return Ok(None) };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.used += FRAME_HEADER + len;
        Ok(Some(frame))
    }

    /// Whether a frame has begun and not ended: where the bytes end here, they were cut.
    pub fn is_midway(&self) -> bool {
        self.used < self.buffer.len()
    }
}

/// A part of a frame's payload, or the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FramePart<'a> {
    /// Bytes of standard output; none where the agent only says that it is alive.
    Stdout(&'a [u8]),
    /// Bytes of standard error.
    Stderr(&'a [u8]),
    /// The whole payload of the last frame.
    End(Vec<u8>),
    /// The whole payload of a frame about output that is gone.
    Gap(Vec<u8>),
}

/// Takes frames apart as their bytes come: output is handed out at once and without a copy, before its frame is whole;
/// only the short frames of JSON are put together.
#[derive(Debug, Default)]
pub struct FrameParts {
    header: [u8; FRAME_HEADER],
    /// Bytes of `header` that are there.
    headed: usize,
    /// The frame that has begun, and the bytes of its payload that are still to come.
    open: Option<(FrameKind, usize)>,
    json: Vec<u8>,
}

impl FrameParts {
    /// The next part, taken off the front of `input`; `None` once all of it has been taken in.
    ///
    /// # Errors
    /// When the bytes are no frame; nothing after them can be read either.
    pub fn next_part<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<FramePart<'a>>, FrameError> {
        let (kind, left) = if let Some(open) = self.open {
            open
        } else {
            let wanted = (FRAME_HEADER - self.headed).min(input.len());
            self.header[self.headed..self.headed + wanted].copy_from_slice(take(input, wanted));
            self.headed += wanted;
            if self.headed < FRAME_HEADER {
                return Ok(None);
            }
            self.headed = 0;
            *self.open.insert(read_header(self.header)?)
        };
        let part = take(input, left.min(input.len()));
        let left = left - part.len();
        if left > 0 && part.is_empty() {
            return Ok(None);
        }
        self.open = (left > 0).then_some((kind, left));
        match kind {
            FrameKind::Stdout => return Ok(Some(FramePart::Stdout(part))),
            FrameKind::Stderr => return Ok(Some(FramePart::Stderr(part))),
            FrameKind::End | FrameKind::Gap => self.json.extend_from_slice(part),
        }
        if left > 0 {
            return Ok(None);
        }
        let json = std::mem::take(&mut self.json);
        Ok(Some(if kind == FrameKind::End { FramePart::End(json) } else { FramePart::Gap(json) }))
    }

    /// Whether a frame has begun and not ended: where the bytes end here, they were cut.
    pub const fn is_midway(&self) -> bool {
        self.headed > 0 || self.open.is_some()
    }
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count);
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = FrameKind> {
        prop_oneof![Just(FrameKind::Stdout), Just(FrameKind::Stderr), Just(FrameKind::End), Just(FrameKind::Gap)]
    }

    fn part_of(part: FramePart<'_>) -> (FrameKind, Vec<u8>) {
        match part {
            FramePart::Stdout(bytes) => (FrameKind::Stdout, bytes.to_vec()),
            FramePart::Stderr(bytes) => (FrameKind::Stderr, bytes.to_vec()),
            FramePart::End(bytes) => (FrameKind::End, bytes),
            FramePart::Gap(bytes) => (FrameKind::Gap, bytes),
        }
    }

    /// With neighbours of the same output put together: how it is cut has no meaning, but for JSON.
    fn runs(parts: Vec<(FrameKind, Vec<u8>)>) -> Vec<(FrameKind, Vec<u8>)> {
        let mut runs: Vec<(FrameKind, Vec<u8>)> = Vec::new();
        for (kind, bytes) in parts {
            match runs.last_mut() {
                Some((last, all)) if *last == kind && matches!(kind, FrameKind::Stdout | FrameKind::Stderr) => {
                    all.extend_from_slice(&bytes);
                }
                _ => runs.push((kind, bytes)),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn frames_come_back_however_the_bytes_are_cut(
            frames in prop::collection::vec((kinds(), prop::collection::vec(any::<u8>(), 0..200)), 0..20),
            cuts in prop::collection::vec(1_usize..50, 1..40),
        ) {
            let mut wire = Vec::new();
            for (kind, payload) in &frames {
                wire.extend_from_slice(&frame_header(*kind, payload.len()));
                wire.extend_from_slice(payload);
            }
            let (mut decoder, mut got) = (FrameDecoder::default(), Vec::new());
            let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
            let (mut parts, mut joined) = (FrameParts::default(), Vec::new());
            while !rest.is_empty() {
                let (mut piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((frame.kind, frame.payload));
                }
                while let Some(part) = parts.next_part(&mut piece).unwrap() {
                    joined.push(part_of(part));
                }
                prop_assert!(piece.is_empty());
                prop_assert_eq!(parts.is_midway(), decoder.is_midway());
                rest = after;
            }
            prop_assert!(!decoder.is_midway());
            prop_assert_eq!(runs(joined), runs(frames.clone()));
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn both_decoders_refuse_the_same(bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..64)) {
            let (mut decoder, mut parts, mut rest) = (FrameDecoder::default(), FrameParts::default(), &bytes[..]);
            decoder.push(&bytes);
            let whole = loop { match decoder.next_frame() { Ok(Some(_)) => {} Ok(None) => break None, Err(error) => break Some(error) } };
            let taken = loop { match parts.next_part(&mut rest) { Ok(Some(_)) => {} Ok(None) => break None, Err(error) => break Some(error) } };
            prop_assert_eq!(whole, taken);
        }

        #[test]
        fn any_bytes_are_frames_or_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = FrameDecoder::default();
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                prop_assert!(frame.payload.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for header in [[0, 0, 0, 0, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0], *b"HTTP/1.1"] {
            let mut decoder = FrameDecoder::default();
            decoder.push(&header);
            assert_eq!(decoder.next_frame(), Err(FrameError::NotAHeader(header)));
        }
        let mut decoder = FrameDecoder::default();
        decoder.push(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge(0xffff_ffff)));
    }
}
