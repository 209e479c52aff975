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

use super::{GuestError, admit, exec, health, stamp, state::AppState, whoami};
use crate::protocol::{ErrorCode, PATH_EXEC, PATH_HEALTH, PATH_WHOAMI};

/// What a caller with a token is told about paths.
const KNOWN_PATHS: &str = "the paths are GET /health, GET /whoami, POST /exec and DELETE /exec/{request-id}";

/// All that the agent answers.
pub(super) fn router(state: AppState) -> Router {
    let ready = from_fn_with_state(state.clone(), admit::when_ready);
    let routes = Router::new()
        .route(PATH_HEALTH, get(health::get.layer(from_fn(admit::understood))))
        .route(PATH_WHOAMI, get(whoami::get.layer(from_fn(admit::understood))))
        .route(PATH_EXEC, post(exec::run.layer(ready).layer(from_fn(admit::understood))))
        .route("/exec/{request_id}", delete(exec::cancel.layer(from_fn(admit::understood))))
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
