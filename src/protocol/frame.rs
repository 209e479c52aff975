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
        let [number, 0, 0, 0, a, b, c, d] = *header else { return Err(FrameError::NotAHeader(*header)) };
        let Some(kind) = FrameKind::of(number) else { return Err(FrameError::NotAHeader(*header)) };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > MAX_FRAME {
            return Err(FrameError::TooLarge(len));
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = FrameKind> {
        prop_oneof![Just(FrameKind::Stdout), Just(FrameKind::Stderr), Just(FrameKind::End), Just(FrameKind::Gap)]
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
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((frame.kind, frame.payload));
                }
                rest = after;
            }
            prop_assert!(!decoder.is_midway());
            prop_assert_eq!(got, frames);
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
