//! `GET /whoami`: the authorized call that does nothing but tell who answers.

use axum::{Json, extract::State};

use super::state::AppState;
use crate::protocol::Whoami;

/// What this build can do beyond what every agent can.
const FEATURES: &[&str] = &[
    "agent.restart",
    "events",
    "exec.argv",
    "exec.attach",
    "exec.cancel",
    "exec.detach",
    "exec.env",
    "exec.pty",
    "exec.request_id",
    "exec.session",
    "exec.stdin",
    "exec.stream",
    "health.proof",
    "logs",
    "system.info",
    "system.metrics",
    "system.processes",
    "system.sockets",
    "system.time",
];

pub(super) async fn get(State(state): State<AppState>) -> Json<Whoami> {
    let account = state.account();
    let installation = state.config().installation.clone();
    let install = tokio::task::spawn_blocking(move || installation?.report()).await.ok().flatten();
    Json(Whoami {
        user: account.user.clone(),
        session_id: account.session_id,
        interactive: account.interactive,
        elevated: account.elevated,
        agent_id: state.agent_id().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        features: FEATURES.iter().map(ToString::to_string).collect(),
        limits: state.config().limits(),
        mode: state.config().mode,
        install,
    })
}
