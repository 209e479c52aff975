//! Who may ask at all: peer, Host, Origin and token, in this order, before the path is looked at.
//!
//! Without a token every path but `/health`, known or not, gives the same answer: a caller who is not let in learns
//! nothing of paths, bodies or limits.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    GuestError,
    connection::{Peer, Standing},
    hosts::HostName,
    loggable::loggable,
    request_id::RequestId,
    state::AppState,
};
use crate::{
    protocol::{ErrorBody, ErrorCode, HEADER_PROTOCOL, PATH_HEALTH, PROTOCOL_VERSION, Stage},
    token::Token,
};

/// The layer around all routes.
pub(super) async fn admit(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    if let Some(value) = request.headers_mut().get_mut(header::AUTHORIZATION) {
        value.set_sensitive(true); // from here on no Debug text shows it
    }
    let origin = match check(&state, &request) {
        Ok(origin) => origin,
        Err(mut error) => {
            if error.code() == ErrorCode::Unauthorized
                && let Some(peer) = report(&state, &request)
                && !state.auth_delay().failed(peer, state.draining()).await
            {
                error = error.closing();
            }
            return error.into_response();
        }
    };
    let mut response = next.run(request).await;
    if let Some(origin) = origin {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Counts and tells a request without the right token. Returns the peer whose answer has to wait.
fn report(state: &AppState, request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    state.counters().auth_failures.add_one();
    state.events().auth_failed(peer, loggable(request.uri().path()));
    // who sends no token guesses none; of guesses only the answer waits: the right token has passed by now
    peer.filter(|_| request.headers().contains_key(header::AUTHORIZATION))
}

/// Returns the request's origin, where it bears one that is allowed.
fn check(state: &AppState, request: &Request) -> Result<Option<HeaderValue>, GuestError> {
    let standing = request.extensions().get::<Peer>().map_or(Standing::Stranger, |peer| peer.standing);
    if standing == Standing::Stranger {
        return Err(GuestError::new(ErrorCode::ForbiddenPeer, "this address is outside the networks that are let in")
            .hint("start the agent with --allow-peer and this address or its network"));
    }
    check_host(state, request.uri(), request.headers())?;
    let origin = check_origin(state, request.headers())?;
    let is_health = request.uri().path() == PATH_HEALTH;
    if !is_health {
        check_token(state, request.headers())?;
        if standing == Standing::Lobby {
            return Err(GuestError::new(ErrorCode::QueueFull, "every connection that the agent serves is taken")
                .hint("close idle connections, and try again")
                .retry_after(1));
        }
    }
    Ok(origin)
}

fn check_host(state: &AppState, uri: &Uri, headers: &HeaderMap) -> Result<(), GuestError> {
    let refused = |detail: &str| {
        GuestError::new(ErrorCode::ForbiddenHost, detail)
            .hint("call the agent localhost or 127.0.0.1, or start it with --allow-host and this name")
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(refused("a request names its host exactly once"));
    };
    let host = host.to_str().map_err(|_| refused("the Host header is not a host"))?;
    // a target in absolute form names the host as well, and some servers would go by that one
    for text in std::iter::once(host).chain(uri.authority().map(axum::http::uri::Authority::as_str)) {
        let name = HostName::of_authority(text).ok_or_else(|| refused("the Host header is not a host"))?;
        if !name.is_loopback() && !state.config().allow_hosts.contains(&name) {
            return Err(refused("the request calls the agent by a name that is not its own"));
        }
    }
    Ok(())
}

fn check_origin(state: &AppState, headers: &HeaderMap) -> Result<Option<HeaderValue>, GuestError> {
    let mut first = None;
    for origin in headers.get_all(header::ORIGIN) {
        if !state.config().allow_origins.iter().any(|allowed| allowed.is(origin.as_bytes())) {
            return Err(GuestError::new(ErrorCode::ForbiddenOrigin, "the request comes from a web page")
                .hint("start the agent with --allow-origin and the page's origin, if it is to be let in"));
        }
        first.get_or_insert_with(|| origin.clone());
    }
    Ok(first)
}

fn check_token(state: &AppState, headers: &HeaderMap) -> Result<(), GuestError> {
    let token = state.token();
    let Some(token) = token.as_ref() else {
        drop(token);
        // not 401: no token could be right, and a caller who was told so would give up
        return Err(not_ready(state));
    };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let wrong = match (values.next(), values.next()) {
        (None, _) => "the request bears no Authorization header",
        (Some(_), Some(_)) => "the request bears more than one Authorization header",
        (Some(value), None) => match bearer(value.as_bytes()) {
            None => "the Authorization header is not Bearer and 64 hex digits",
            Some(given) if given == *token => return Ok(()),
            Some(_) => "the token is not this agent's",
        },
    };
    Err(GuestError::new(ErrorCode::Unauthorized, wrong)
        .hint("send the token that the pod was set up with, as Authorization: Bearer <64 hex digits>"))
}

fn bearer(value: &[u8]) -> Option<Token> {
    let (scheme, rest) = value.split_at_checked(value.iter().position(|c| *c == b' ')?)?;
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return None;
    }
    Token::parse(rest).ok()
}

/// 503 with the stage; while the agent goes down `agent_stopping`, for a call that has not been started.
fn not_ready(state: &AppState) -> GuestError {
    let readiness = state.readiness();
    let (code, detail) = match readiness.stage {
        Stage::Draining => (ErrorCode::AgentStopping, "the agent is going down and takes no new calls"),
        Stage::WaitingForToken => (ErrorCode::NotReady, "the agent waits for its token's file"),
        Stage::InstallFailed => (ErrorCode::NotReady, "the guest's installation failed"),
        _ => (ErrorCode::NotReady, "the guest's installation has not finished"),
    };
    let body = ErrorBody {
        detail: Some(detail.to_owned()),
        hint: Some("ask /health until it answers 200, then try again".to_owned()),
        stage: Some(readiness.stage),
        waiting_for: readiness.waiting_for,
        started: (code == ErrorCode::AgentStopping).then_some(false),
        ..ErrorBody::new(code)
    };
    GuestError::with_body(body).retry_after(1)
}

/// The layer of a route that serves only while `/health` is 200.
pub(super) async fn when_ready(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if state.readiness().stage == Stage::Ready { next.run(request).await } else { not_ready(&state).into_response() }
}

/// The layer of every known path and method: the headers that all of them understand.
pub(super) async fn understood(request: Request, next: Next) -> Response {
    match check_common_headers(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_common_headers(headers: &HeaderMap) -> Result<(), GuestError> {
    for value in headers.get_all(HEADER_PROTOCOL) {
        let theirs = value.to_str().unwrap_or("something unreadable").trim();
        if theirs.parse() != Ok(PROTOCOL_VERSION) {
            let theirs: String = theirs.chars().take(32).collect();
            let detail = format!("the request speaks protocol {theirs}, this agent speaks {PROTOCOL_VERSION}");
            return Err(GuestError::new(ErrorCode::ProtocolVersionMismatch, detail)
                .hint("use the same version of podlink on both sides"));
        }
    }
    match RequestId::given(headers) {
        Ok(_) => Ok(()),
        Err(_) => Err(GuestError::new(
            ErrorCode::BadRequest,
            "the X-Request-Id is not one id of 1 to 128 letters, digits and . _ ~ -",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_is() {
        let digits = "0123456789abcdef".repeat(4);
        for good in ["Bearer", "bearer", "BEARER"] {
            assert!(bearer(format!("{good} {digits}").as_bytes()).is_some());
        }
        assert!(bearer(format!("Bearer   {digits}").as_bytes()).is_some());
        for bad in ["Basic", "Bearerx", ""] {
            assert!(bearer(format!("{bad} {digits}").as_bytes()).is_none());
        }
        for bad in [digits.as_str(), "Bearer", "Bearer ", &format!("Bearer {digits}, Bearer {digits}"), &digits[1..]] {
            assert!(bearer(bad.as_bytes()).is_none());
        }
    }
}
