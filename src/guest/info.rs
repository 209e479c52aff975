//! `GET /system/info`: what the guest is, and on request what is installed in it.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;

use super::{GuestError, state::AppState, sys, system};
use crate::protocol::ErrorCode;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InfoQuery {
    packages: Option<String>,
}

/// `GET /system/info`.
pub(super) async fn get(
    State(state): State<AppState>,
    query: Result<Query<InfoQuery>, QueryRejection>,
) -> Result<Response, GuestError> {
    let patience = state.config().deadlines.snapshot;
    let packages = query.map_err(|error| error.body_text()).and_then(|Query(query)| match query.packages.as_deref() {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(format!("packages is {other:?}")),
    });
    let packages = packages
        .map_err(|detail| GuestError::new(ErrorCode::BadRequest, detail).hint("packages is 1 or 0, true or false"))?;
    let looks = state.looks();
    let taken = if packages {
        // their own deadline comes first, so that the rest is told all the same
        let (runtime, deadline) = (tokio::runtime::Handle::current(), patience.mul_f64(0.8));
        let look = move || {
            let mut info = sys::system_info()?;
            match runtime.block_on(sys::packages(deadline)) {
                Ok(packages) => info.packages = Some(packages),
                Err(error) => info.packages_error = Some(error.to_string()),
            }
            Ok(info)
        };
        looks.packages.json(patience, look).await
    } else {
        looks.info.json(patience, sys::system_info).await
    };
    system::answer(system::json(taken))
}
