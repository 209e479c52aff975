//! Bodies, read under the limits of the protocol and refused in its own form.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use serde::de::DeserializeOwned;

use super::GuestError;
use crate::protocol::ErrorCode;

/// The whole body of a JSON request: content type, size and pace have been checked, the text has not been parsed.
#[derive(Debug)]
pub struct JsonBytes(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = GuestError;

    async fn from_request(request: Request, state: &S) -> Result<Self, GuestError> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|error| GuestError::new(ErrorCode::BadRequest, error.to_string()))?;
        Ok(Self(bytes))
    }
}

/// Parses a JSON body; what is wrong with it is told with its place.
///
/// # Errors
/// `bad_request`.
pub fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, GuestError> {
    serde_json::from_slice(body).map_err(|error| GuestError::new(ErrorCode::BadRequest, format!("the body: {error}")))
}
