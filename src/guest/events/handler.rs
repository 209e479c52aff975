//! `GET /events`.

use std::convert::Infallible;

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures_util::stream::unfold;
use serde::Deserialize;

use super::{
    super::{GuestError, connection::Patient, extract::asked, state::AppState},
    ring::Wanted,
    subscription::Subscription,
};
use crate::protocol::{ErrorCode, EventName, HEADER_LAST_EVENT_ID, MEDIA_EVENTS, event_matches};

/// What `GET /events` may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::guest) struct EventsQuery {
    types: Option<String>,
    since: Option<String>,
    output: Option<String>,
}

/// `GET /events`.
pub(in crate::guest) async fn get(
    State(state): State<AppState>,
    query: Result<Query<EventsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, GuestError> {
    let query = asked(query)?;
    let wanted = wanted(&query)?;
    // the header is the newer of the two: a reader that comes back by itself sends it, to the address of before
    let header = headers.get(HEADER_LAST_EVENT_ID).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let since = header.or(query.since).filter(|since| !since.is_empty());
    let subscription = Subscription::new(state.events(), wanted, since.as_deref());
    let stream = unfold(subscription, async |mut subscription| {
        let bytes = subscription.next().await?;
        Some((Ok::<_, Infallible>(bytes), subscription))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_EVENTS));
    response.extensions_mut().insert(Patient);
    Ok(response)
}

/// The events that are asked for.
fn wanted(query: &EventsQuery) -> Result<Wanted, GuestError> {
    let bad = |detail: String| GuestError::new(ErrorCode::BadRequest, detail);
    let output = match query.output.as_deref() {
        None | Some("" | "0" | "false") => false,
        Some("1" | "true") => true,
        Some(_) => return Err(bad("output is neither 0 nor 1".to_owned())),
    };
    let all = |name| output || name != EventName::ExecOutput;
    let Some(types) = query.types.as_deref().filter(|types| !types.is_empty()) else {
        return Ok(Wanted::those(all));
    };
    let patterns: Vec<&str> = types.split(',').map(str::trim).collect();
    for pattern in &patterns {
        if Wanted::those(|name| event_matches(pattern, name.as_str())).is_empty() {
            let shown: String = pattern.chars().take(64).collect();
            let known = EventName::ALL.map(EventName::as_str).join(", ");
            return Err(bad(format!("types: {shown:?} is no event of this agent"))
                .hint(format!("the events are {known}; `exec.*` stands for all that begin so")));
        }
        if *pattern == EventName::ExecOutput.as_str() && !output {
            return Err(
                bad("types: exec.output is sent only where `output=1` asks for it".to_owned()).hint("add `output=1`")
            );
        }
    }
    Ok(Wanted::those(|name| all(name) && patterns.iter().any(|pattern| event_matches(pattern, name.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(types: &str, output: &str) -> Result<Vec<&'static str>, ErrorCode> {
        let query = EventsQuery { types: Some(types.into()), output: Some(output.into()), since: None };
        let wanted = wanted(&query).map_err(|error| error.code())?;
        Ok(EventName::ALL.into_iter().filter(|name| wanted.has(*name)).map(EventName::as_str).collect())
    }

    #[test]
    fn filters() {
        assert_eq!(names("exec.*", "").unwrap(), ["exec.started", "exec.exited"]);
        assert_eq!(names("exec.*", "1").unwrap(), ["exec.started", "exec.output", "exec.exited"]);
        assert_eq!(names(" log , exec.started", "0").unwrap(), ["exec.started", "log"]);
        assert_eq!(names("", "").unwrap().len(), EventName::ALL.len() - 1);
        assert_eq!(names("*", "true").unwrap().len(), EventName::ALL.len());
        for (types, output) in [("exec", ""), ("exec.*,", ""), ("exec.output", "0"), ("log", "yes"), ("nope.*", "")] {
            assert_eq!(names(types, output), Err(ErrorCode::BadRequest), "{types} {output}");
        }
    }
}
