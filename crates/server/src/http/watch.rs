//! How the server is doing, for people and probes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_bus::{BusError, Reply, Request};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::http::{document, json};
use crate::params::Params;
use crate::refusal::Refusal;
use crate::to_wire;

pub(crate) async fn stats(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let given = params.text("namespace").is_some();
    // Without one: `default`, or the first of a token that is not for it.
    let home = caller.grant.as_deref().and_then(|grant| grant.namespaces.home()).filter(|_| !given);
    let namespace = home.map_or_else(|| params.namespace(), |home| Ok(home.clone()))?;
    match app.ask(None, Request::Stats).await? {
        Reply::Stats(stats) => {
            let uptime_ms = app.runtime.metrics().uptime_ms;
            Ok(document(StatusCode::OK, &to_wire::stats(&stats, uptime_ms, &namespace)))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Alive: the process answers.
pub(crate) async fn healthz() -> Response {
    json(StatusCode::OK, "{\"status\":\"ok\"}".to_owned())
}

/// Ready: it also takes work.
pub(crate) async fn readyz(State(app): State<SharedApp>) -> Response {
    let health = app.runtime.health();
    let error = match health.storage_failed() {
        Some(reason) => BusError::StorageFailed(reason.to_owned()),
        None if health.stopping() => BusError::ShuttingDown,
        None => return json(StatusCode::OK, "{\"status\":\"ready\"}".to_owned()),
    };
    Refusal::from(to_wire::problem(&error)).into_response()
}
