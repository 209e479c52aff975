//! From a fault in the agent to an answer: the one place where errors become HTTP.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::protocol::{ErrorBody, ErrorCode};

/// An answer that is not a success: what the caller is told, and apart from it what only the log is told.
#[derive(Debug)]
pub struct GuestError {
    body: Box<ErrorBody>,
    retry_after_secs: Option<u32>,
    closing: bool,
    cause: Option<anyhow::Error>,
}

impl GuestError {
    /// An error with its code and one sentence for the caller.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let body = ErrorBody { detail: Some(detail.into()), ..ErrorBody::new(code) };
        Self { body: Box::new(body), retry_after_secs: None, closing: false, cause: None }
    }

    /// An error with its whole body.
    pub fn with_body(body: ErrorBody) -> Self {
        Self { body: Box::new(body), retry_after_secs: None, closing: false, cause: None }
    }

    /// Adds what the caller can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// Adds a `Retry-After` header.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_secs = Some(seconds);
        self
    }

    /// Adds the cause, which goes to the log and never to the caller.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<anyhow::Error>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Tells the caller that the connection ends with this answer: the rest of its body is not read.
    #[must_use]
    pub const fn closing(mut self) -> Self {
        self.closing = true;
        self
    }

    /// What the caller is told. The cause, if there is one, goes to the log at this moment.
    pub(super) fn told(&self) -> &ErrorBody {
        if let Some(cause) = &self.cause {
            // the request's span names its id
            tracing::error!(code = self.body.error.as_str(), cause = %format_args!("{cause:#}"), "request failed");
        }
        &self.body
    }

    /// Which error it is.
    pub const fn code(&self) -> ErrorCode {
        self.body.error
    }
}

impl IntoResponse for GuestError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.told().error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = self.body.error;
        let mut response = (status, Json(*self.body)).into_response();
        response.extensions_mut().insert(code); // for the line that says what came of a change
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if self.closing {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
