//! Answers of the agent: read whole, and turned into values or errors.

use reqwest::StatusCode;
use serde::de::DeserializeOwned;

use super::{
    super::{Error, ErrorKind, Result},
    health::{Place, Seen, stage_sentence},
};
use crate::protocol::{ErrorBody, ErrorCode, Stage};

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Whether it is an error of this code.
    pub(super) fn is(&self, code: ErrorCode) -> bool {
        self.status.as_u16() == code.status() && self.error_body().is_some_and(|body| body.error == code)
    }

    fn error_body(&self) -> Option<ErrorBody> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The value of a success, or the error that the answer stands for.
    pub(super) fn parse<T: DeserializeOwned>(&self, place: &Place) -> Result<T> {
        if matches!(self.status, StatusCode::OK | StatusCode::ACCEPTED) {
            return serde_json::from_slice(&self.body).map_err(|error| {
                Error::new(ErrorKind::ForeignProgram, "the answer is not one of the agent's").with_source(error)
            });
        }
        Err(match self.error_body() {
            Some(body) => error_of(body, place),
            None => place.error(&Seen::Foreign {
                status: Some(self.status.as_u16()),
                what: format!("status {} without an agent's body", self.status.as_u16()),
            }),
        })
    }
}

/// The error that the agent's own words stand for.
pub(super) fn error_of(body: ErrorBody, place: &Place) -> Error {
    let said = body.detail.clone().unwrap_or_else(|| body.error.as_str().to_owned());
    let error = match body.error {
        ErrorCode::Unauthorized => place.token_mismatch(),
        ErrorCode::NotReady => place.not_ready(body.stage.unwrap_or(Stage::Unknown), &body.waiting_for),
        ErrorCode::QueueFull => Error::new(ErrorKind::Busy, format!("the agent has no slot left: {said}"))
            .with_hint(format!(
                "`podlink pod ps{}` shows what runs; try again once something has ended. `--no-queue` says so at once, a job (`--detach`) needs no slot",
                place.pod_flag
            )),
        ErrorCode::Busy => Error::new(ErrorKind::Busy, format!("the call would have to wait: {said}"))
            .with_hint(format!(
                "`podlink pod ps{}` shows what runs; leave out `--no-queue`, and it waits its turn",
                place.pod_flag
            )),
        ErrorCode::Cancelled => {
            let done = match body.started {
                Some(false) => "before it had started, nothing ran",
                _ => "while it ran",
            };
            Error::new(ErrorKind::Cancelled, format!("the call was cancelled {done}"))
        }
        ErrorCode::NotFound => Error::new(ErrorKind::NotFound, format!("the agent knows of no such thing: {said}")),
        ErrorCode::Unsupported => Error::new(ErrorKind::Unsupported, format!("the agent cannot do this: {said}")),
        ErrorCode::AgentStopping => {
            let done = match body.started {
                Some(true) => "the call had started and was ended with it",
                Some(false) => "the call had not started, nothing ran",
                None => "whether the call had started is not known",
            };
            Error::new(ErrorKind::AgentStopping, format!("{}; {done}", stage_sentence(Stage::Draining, &[])))
        }
        ErrorCode::SpawnFailed => {
            Error::new(ErrorKind::SpawnFailed, format!("the program could not be started: {said}"))
        }
        code => Error::new(ErrorKind::Rejected, format!("the agent answers {}: {said}", code.as_str())),
    };
    let error = match &body.hint {
        Some(hint) if error.hint().is_none() => error.with_hint(hint.clone()),
        _ => error,
    };
    error.with_answer(body)
}
