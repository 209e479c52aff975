//! The frame decoders: any bytes, and real frames, cut anywhere.
//!
//! The first bytes say where the rest is cut. Then one of two things is asked, by the lowest bit of the first:
//! - the rest is taken for a stream as it stands: in pieces and at once it has to give the same frames and the same end;
//! - frames are made of the rest, and have to come back the same, in the same order, with nothing left over. One byte
//!   of them is then changed: what lies before it has to come back all the same.
//!
//! Each time the decoder that hands out parts has to say what the one that hands out frames says.
#![no_main]

use libfuzzer_sys::{
    Corpus,
    arbitrary::{Result, Unstructured},
    fuzz_target,
};
use podlink::protocol::{
    FRAME_HEADER, Frame, FrameDecoder, FrameError, FrameKind, FramePart, FrameParts, MAX_FRAME, frame_header,
};

fuzz_target!(|data: &[u8]| -> Corpus {
    match run(&mut Unstructured::new(data)) {
        Ok(()) => Corpus::Keep,
        Err(_) => Corpus::Reject, // too few bytes to say anything
    }
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let made = input.arbitrary::<bool>()?;
    let cuts: [u8; 4] = input.arbitrary()?;
    if !made {
        let stream = input.bytes(input.len())?;
        let whole = decode([stream]);
        assert_eq!(decode(pieces(stream, cuts)), whole);
        assert!(whole.frames.iter().all(|frame| frame.payload.len() <= MAX_FRAME));
        let told: usize = whole.frames.iter().map(|frame| FRAME_HEADER + frame.payload.len()).sum();
        assert!(told <= stream.len());
        assert_eq!(whole.midway, told < stream.len(), "what is left over is said to be left over");
        if let (None, Some(header)) = (whole.error, stream.get(told..told + FRAME_HEADER)) {
            assert!(matches!(header[0], 1..=4) && header[1..4] == [0; 3], "what is waited for is a frame: {header:?}");
            let len = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            assert!(len as usize <= MAX_FRAME, "and not a frame over the limit: {len}");
        }
        parts_say_the_same(stream, &whole, cuts);
        return Ok(());
    }

    let change: (u16, u8) = input.arbitrary()?;
    let mut frames = Vec::new();
    while !input.is_empty() {
        let kind = *input.choose(&[FrameKind::Stdout, FrameKind::Stderr, FrameKind::End, FrameKind::Gap])?;
        let len = usize::from(input.arbitrary::<u8>()?).min(input.len());
        frames.push(Frame { kind, payload: input.bytes(len)?.to_vec() });
    }
    let (mut stream, mut ends) = (Vec::new(), Vec::new());
    for Frame { kind, payload } in &frames {
        stream.extend_from_slice(&frame_header(*kind, payload.len()));
        stream.extend_from_slice(payload);
        ends.push(stream.len());
    }
    let decoded = decode(pieces(&stream, cuts));
    assert_eq!(decoded, Decoded { frames: frames.clone(), error: None, midway: false });
    parts_say_the_same(&stream, &decoded, cuts);

    if !stream.is_empty() {
        let place = usize::from(change.0) % stream.len();
        stream[place] ^= change.1;
        let before = ends.iter().filter(|end| **end <= place).count();
        let decoded = decode(pieces(&stream, cuts));
        assert_eq!(decoded.frames[..before], frames[..before]);
        assert_eq!(decoded, decode([&stream[..]]));
        parts_say_the_same(&stream, &decoded, cuts);
    }
    Ok(())
}

/// All that a decoder says of a stream.
#[derive(Debug, PartialEq)]
struct Decoded {
    frames: Vec<Frame>,
    error: Option<FrameError>,
    midway: bool,
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = FrameDecoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error), "an end is an end");
                    return Decoded { frames, error: Some(error), midway: decoder.is_midway() };
                }
            }
        }
    }
    Decoded { frames, error: None, midway: decoder.is_midway() }
}

/// The stream in pieces of these lengths, over and over; 0 is an empty piece, 255 the whole rest.
fn pieces(stream: &[u8], cuts: [u8; 4]) -> Vec<&[u8]> {
    // nothing but empty pieces would never come to an end
    let cuts = if cuts == [0; 4] { [1; 4] } else { cuts };
    let (mut rest, mut found) = (stream, Vec::new());
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let len = if *cut == u8::MAX { rest.len() } else { usize::from(*cut).min(rest.len()) };
        let (piece, after) = rest.split_at(len);
        found.push(piece);
        rest = after;
    }
    found
}

/// `decoded` is what the other decoder says of this stream.
fn parts_say_the_same(stream: &[u8], decoded: &Decoded, cuts: [u8; 4]) {
    let (mut parts, mut error) = (FrameParts::default(), None);
    let mut found: Vec<Frame> = Vec::new();
    'pieces: for mut piece in pieces(stream, cuts) {
        let mut left = piece.len();
        loop {
            let (kind, payload) = match parts.next_part(&mut piece) {
                Ok(Some(FramePart::Stdout(bytes))) => (FrameKind::Stdout, bytes.to_vec()),
                Ok(Some(FramePart::Stderr(bytes))) => (FrameKind::Stderr, bytes.to_vec()),
                Ok(Some(FramePart::End(bytes))) => (FrameKind::End, bytes),
                Ok(Some(FramePart::Gap(bytes))) => (FrameKind::Gap, bytes),
                Ok(None) => break,
                Err(met) => {
                    error = Some(met);
                    break 'pieces;
                }
            };
            assert!(piece.len() < left || payload.is_empty(), "a part is taken off the front");
            left = piece.len();
            found.push(Frame { kind, payload });
        }
        assert!(piece.is_empty(), "a piece is taken in whole");
    }
    assert_eq!(error, decoded.error);
    let mut wanted = decoded.frames.clone();
    if error.is_none() {
        assert_eq!(parts.is_midway(), decoded.midway);
        // of output that has begun, what is there is told
        let told: usize = wanted.iter().map(|frame| FRAME_HEADER + frame.payload.len()).sum();
        let kind =
            [FrameKind::Stdout, FrameKind::Stderr].into_iter().find(|kind| stream.get(told) == Some(&kind.number()));
        if let (Some(kind), Some(rest @ [_, ..])) = (kind, stream.get(told + FRAME_HEADER..)) {
            wanted.push(Frame { kind, payload: rest.to_vec() });
        }
    }
    assert_eq!(runs(found), runs(wanted));
}

/// With neighbours of one output put together: how output is cut means nothing.
fn runs(frames: Vec<Frame>) -> Vec<Frame> {
    let mut runs: Vec<Frame> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some(last) if last.kind == frame.kind && matches!(frame.kind, FrameKind::Stdout | FrameKind::Stderr) => {
                last.payload.extend_from_slice(&frame.payload);
            }
            _ => runs.push(frame),
        }
    }
    runs
}
