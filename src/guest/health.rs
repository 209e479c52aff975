//! `GET /health`: readiness, and the proof that the agent holds the token.
//!
//! It reads memory alone and waits for nothing, so that it answers while everything else is busy.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{GuestError, state::AppState};
use crate::{
    protocol::{ErrorCode, HEADER_CHALLENGE, HEADER_PROOF, Health, PROTOCOL_VERSION, Stage},
    token::Challenge,
};

pub(super) async fn get(State(state): State<AppState>, headers: HeaderMap) -> Result<Response, GuestError> {
    let challenge = challenge(&headers)?;
    let readiness = state.readiness();
    let identity = state.identity();
    let ok = readiness.stage == Stage::Ready;
    let health = Health {
        ok,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION,
        started_at: identity.started_at.clone(),
        uptime_ms: u64::try_from(identity.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        agent_id: identity.agent_id.clone(),
        stage: readiness.stage,
        waiting_for: readiness.waiting_for,
    };
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = (status, Json(health)).into_response();
    if !ok {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    let proof = challenge.and_then(|challenge| state.token().as_ref().map(|token| token.prove(&challenge)));
    if let Some(proof) = proof.and_then(|proof| HeaderValue::try_from(proof.to_hex()).ok()) {
        response.headers_mut().insert(HeaderName::from_static(HEADER_PROOF), proof);
    }
    Ok(response)
}

fn challenge(headers: &HeaderMap) -> Result<Option<Challenge>, GuestError> {
    let mut values = headers.get_all(HEADER_CHALLENGE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match Challenge::parse(value.as_bytes()) {
        Some(challenge) if values.next().is_none() => Ok(Some(challenge)),
        _ => Err(GuestError::new(ErrorCode::BadRequest, "the Podlink-Challenge is not 64 hex digits, once")),
    }
}
