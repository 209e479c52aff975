//! One connection over which frames come.

use hyper::body::{Buf as _, Bytes};
use reqwest::Response;

use super::super::{Error, ErrorKind, Result};
use crate::protocol::{FramePart, FrameParts};

/// A connection over which frames come.
pub(super) struct Live {
    pub(super) response: Response,
    /// What of it has been read and not taken apart.
    pub(super) chunk: Bytes,
    parts: FrameParts,
}

/// A part of a frame that holds its bytes.
pub(super) enum Part {
    Stdout(Bytes),
    Stderr(Bytes),
    Gap(Vec<u8>),
    End(Vec<u8>),
}

impl Live {
    pub(super) fn new(response: Response) -> Self {
        Self { response, chunk: Bytes::new(), parts: FrameParts::default() }
    }

    /// The next part of what has been read.
    pub(super) fn part(&mut self) -> Result<Option<Part>> {
        let mut rest: &[u8] = &self.chunk;
        let part = self
            .parts
            .next_part(&mut rest)
            .map_err(|error| garbled("something that is no frame").with_source(error))?;
        let left = rest.len();
        let part = part.map(|part| match part {
            FramePart::Stdout(bytes) => Part::Stdout(self.chunk.slice_ref(bytes)),
            FramePart::Stderr(bytes) => Part::Stderr(self.chunk.slice_ref(bytes)),
            FramePart::Gap(json) => Part::Gap(json),
            FramePart::End(json) => Part::End(json),
        });
        self.chunk.advance(self.chunk.len() - left);
        Ok(part)
    }
}

/// A proved agent that does not keep to the protocol.
pub(super) fn garbled(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the agent sent {what}; what came before it is whole"))
}
