//! The one table of paths, and the layers around it.

use std::any::Any;

use axum::{
    Router,
    extract::Request,
    handler::Handler as _,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use tower_http::catch_panic::CatchPanicLayer;

use super::{
    GuestError, admit, attach,
    audit::{Action, audited},
    clock, events, exec, health, info, logs, metrics, processes, restart, sessions, stamp,
    state::AppState,
    system, whoami,
};
use crate::protocol::{
    ErrorCode, PATH_AGENT_RESTART, PATH_EVENTS, PATH_EXEC, PATH_EXEC_ATTACH, PATH_HEALTH, PATH_LOGS, PATH_PROCESSES,
    PATH_SESSIONS, PATH_SYSTEM_INFO, PATH_SYSTEM_METRICS, PATH_SYSTEM_PROCESSES, PATH_SYSTEM_SOCKETS, PATH_SYSTEM_TIME,
    PATH_WHOAMI,
};

/// What a caller with a token is told about paths.
const KNOWN_PATHS: &str = "the paths are /health, /whoami, /exec, /processes, /sessions, /events, /logs, /agent and /system; \
                           docs/protocol.md tells of each";

/// All that the agent answers.
pub(super) fn router(state: AppState) -> Router {
    let ready = from_fn_with_state(state.clone(), admit::when_ready);
    // innermost: what was not understood or not taken has changed nothing
    let audit = |action: Action| from_fn_with_state(action, audited);
    let routes = Router::new()
        .route(PATH_HEALTH, get(health::get.layer(from_fn(admit::understood))))
        .route(PATH_WHOAMI, get(whoami::get.layer(from_fn(admit::understood))))
        .route(
            PATH_EXEC,
            post(exec::run.layer(audit(Action::Exec)).layer(ready.clone()).layer(from_fn(admit::understood))),
        )
        .route(
            PATH_EXEC_ATTACH,
            get(attach::exec.layer(audit(Action::Exec)).layer(ready).layer(from_fn(admit::understood)))
                .delete(exec::cancel_attach.layer(audit(Action::Cancel)).layer(from_fn(admit::understood))),
        )
        .route(
            "/exec/{request_id}",
            delete(exec::cancel.layer(audit(Action::Cancel)).layer(from_fn(admit::understood))),
        )
        .route(PATH_PROCESSES, get(processes::list.layer(from_fn(admit::understood))))
        .route(
            "/processes/{process_id}",
            get(processes::get.layer(from_fn(admit::understood)))
                .delete(processes::end.layer(audit(Action::End)).layer(from_fn(admit::understood))),
        )
        .route(
            "/processes/{process_id}/attach",
            get(attach::process.layer(audit(Action::Attach)).layer(from_fn(admit::understood))),
        )
        .route("/processes/{process_id}/output", get(processes::output.layer(from_fn(admit::understood))))
        .route(
            "/processes/{process_id}/stdin",
            post(processes::write_stdin.layer(audit(Action::Stdin)).layer(from_fn(admit::understood)))
                .delete(processes::close_stdin.layer(audit(Action::StdinClose)).layer(from_fn(admit::understood))),
        )
        .route(
            "/processes/{process_id}/signal",
            post(processes::signal.layer(audit(Action::Signal)).layer(from_fn(admit::understood))),
        )
        .route(PATH_EVENTS, get(events::get.layer(from_fn(admit::understood))))
        .route(PATH_SESSIONS, get(sessions::list.layer(from_fn(admit::understood))))
        .route(
            "/sessions/{name}",
            delete(sessions::end.layer(audit(Action::SessionEnd)).layer(from_fn(admit::understood))),
        )
        .route(
            PATH_AGENT_RESTART,
            post(restart::ask.layer(audit(Action::AgentRestart)).layer(from_fn(admit::understood))),
        )
        .route(PATH_LOGS, get(logs::get.layer(from_fn(admit::understood))))
        .route(PATH_SYSTEM_PROCESSES, get(system::processes.layer(from_fn(admit::understood))))
        .route(PATH_SYSTEM_SOCKETS, get(system::sockets.layer(from_fn(admit::understood))))
        .route(PATH_SYSTEM_INFO, get(info::get.layer(from_fn(admit::understood))))
        .route(PATH_SYSTEM_METRICS, get(metrics::get.layer(from_fn(admit::understood))))
        .route(
            PATH_SYSTEM_TIME,
            get(clock::get.layer(from_fn(admit::understood)))
                .post(clock::set.layer(audit(Action::SetTime)).layer(from_fn(admit::understood))),
        )
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    around(routes, &state).with_state(state)
}

/// From the outside: stamp, panics, admission.
fn around(routes: Router<AppState>, state: &AppState) -> Router<AppState> {
    routes
        .layer(from_fn_with_state(state.clone(), admit::admit))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(state.clone(), stamp::stamp))
}

async fn not_found() -> GuestError {
    GuestError::new(ErrorCode::NotFound, "there is no such path").hint(KNOWN_PATHS)
}

async fn method_not_allowed(request: Request) -> GuestError {
    let detail = format!("{} is not a method of this path", request.method());
    GuestError::new(ErrorCode::MethodNotAllowed, detail).hint("the Allow header names the methods")
}

/// The panic itself has been logged by the hook, in the request's span.
fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    GuestError::new(ErrorCode::InternalError, "the agent met a fault of its own; the request may have had effects")
        .hint("the agent's log tells more, under this request's id")
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{StatusCode, header},
    };
    use http_body_util::BodyExt as _;
    use tokio::sync::watch;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        guest::{
            Config, calls,
            connection::{Peer, Standing},
            gates::Gates,
            state::Identity,
        },
        protocol::{ErrorBody, HEADER_REQUEST_ID},
        token::Token,
    };

    async fn state(token: Token, runs_dir: std::path::PathBuf) -> AppState {
        let mut config = Config::new("unused".into(), &[]);
        config.exec.runs_dir = runs_dir;
        let identity = Identity::generate().unwrap();
        let bus = events::Bus::new(&identity.agent_id, &config.events);
        let calls = calls::Calls::new(config.exec.clone(), identity.agent_id.clone(), bus).await.unwrap();
        let gates = watch::channel(Gates::Waiting([].into())).1;
        AppState::new(config, identity, calls, watch::channel(Some(token)).1, gates)
    }

    #[tokio::test]
    async fn a_panic_is_a_500_with_its_id_and_not_the_end() {
        let runs = tempfile::tempdir().unwrap();
        let token = Token::generate().unwrap();
        let state = state(token.clone(), runs.path().join("runs")).await;
        let routes = Router::new()
            .route("/panic", get(|| async { panic!("on purpose") as () }))
            .route("/fine", get(|| async { "fine" }));
        let app = around(routes, &state).with_state(state);
        let ask = async |path: &str| {
            let address = ([127, 0, 0, 1], 1).into();
            let request = Request::get(path)
                .header(header::HOST, "localhost")
                .header(header::AUTHORIZATION, format!("Bearer {}", token.expose().as_str()))
                .header(HEADER_REQUEST_ID, "mine")
                .extension(Peer { address, standing: Standing::Served });
            app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
        };
        let response = ask("/panic").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[HEADER_REQUEST_ID], "mine");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains("on purpose"), "the panic is the log's alone");
        let body: ErrorBody = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.error, ErrorCode::InternalError);
        assert_eq!(ask("/fine").await.status(), StatusCode::OK);
    }
}
