//! `GET /system/metrics`: how busy the guest and its agent are, as JSON or as text for Prometheus.

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};

use super::{
    GuestError,
    prometheus::{self, Dialect},
    state::AppState,
    sys, system,
};
use crate::protocol::{ErrorCode, MEDIA_OPENMETRICS, MEDIA_PROMETHEUS, Metrics};

/// `GET /system/metrics`.
pub(super) async fn get(State(state): State<AppState>, headers: HeaderMap) -> Result<Response, GuestError> {
    let (patience, looking) = (state.config().deadlines.snapshot, state.clone());
    let look = move || {
        let mut metrics = sys::system_metrics()?;
        env!("CARGO_PKG_VERSION").clone_into(&mut metrics.agent.version);
        metrics.agent.uptime_seconds = looking.identity().started.elapsed().as_secs_f64();
        looking.counters().fill(&mut metrics.agent, looking.calls().living() as u64);
        Ok(metrics)
    };
    let taken = state.looks().metrics.json(patience, look).await;
    let json = system::json(taken)?;
    match wanted(&headers) {
        None => system::answer(Ok(json)),
        Some(dialect) => text(&json, dialect),
    }
}

fn text(json: &Bytes, dialect: Dialect) -> Result<Response, GuestError> {
    let metrics: Metrics = serde_json::from_slice(json).map_err(|error| {
        GuestError::new(ErrorCode::InternalError, "the numbers cannot be written as text").caused_by(error)
    })?;
    let mut response = prometheus::text(&metrics, dialect).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, dialect.content_type());
    Ok(response)
}

/// The form that the caller likes best; JSON where it names none that there is, or takes anything.
fn wanted(headers: &HeaderMap) -> Option<Dialect> {
    let mut best: Option<(f32, Option<Dialect>)> = None;
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let form = match media.as_str() {
            MEDIA_OPENMETRICS => Some(Dialect::OpenMetrics),
            MEDIA_PROMETHEUS | "text/*" => Some(Dialect::Prometheus),
            "application/json" | "application/*" | "*/*" => None,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse::<f32>().ok()).unwrap_or(1.0);
        // of equals the first
        if weight > best.map_or(0.0, |(weight, _)| weight) {
            best = Some((weight, form));
        }
    }
    best.and_then(|(_, form)| form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_is_liked_best() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, form) in [
            ("", None),
            ("*/*", None),
            ("application/json", None),
            ("text/html, application/xhtml+xml, */*;q=0.8", None),
            ("text/plain", Some(Dialect::Prometheus)),
            ("Text/Plain; version=0.0.4; charset=utf-8", Some(Dialect::Prometheus)),
            ("text/*", Some(Dialect::Prometheus)),
            (prometheus_3, Some(Dialect::OpenMetrics)),
            ("application/openmetrics-text;q=0.1, text/plain;q=0.5", Some(Dialect::Prometheus)),
            ("text/plain;q=0", None),
            ("text/plain;q=0.4, application/json;q=0.9", None),
            ("image/png", None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(wanted(&headers), form, "{accept}");
        }
        assert_eq!(wanted(&HeaderMap::new()), None);
    }
}
