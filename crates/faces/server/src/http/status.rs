//! The state of the server, for people and probes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_broker::{Health, Stall};
use millrace_bus::{BusError, Reply, Request};
use millrace_model::Requester;
use millrace_wire::ErrorCode;

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
    // Without a namespace: `default`, or the first namespace of a token that is not valid for `default`.
    let home = caller.grant.as_deref().and_then(|grant| grant.namespaces.home()).filter(|_| !given);
    let namespace = home.map_or_else(|| params.namespace(), |home| Ok(home.clone()))?;
    match app.request(Requester::Trusted, Request::Stats).await? {
        Reply::Stats(stats) => {
            let uptime_ms = app.broker.metrics().uptime_ms;
            Ok(document(StatusCode::OK, &to_wire::stats(&stats, uptime_ms, &namespace)))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Liveness: the process answers.
pub(crate) async fn healthz() -> Response {
    json(StatusCode::OK, "{\"status\":\"ok\"}".to_owned())
}

/// Readiness: the server also accepts work.
pub(crate) async fn readyz(State(app): State<SharedApp>) -> Response {
    let health = app.broker.health();
    if let Some(reason) = health.storage_failed() {
        let error = BusError::StorageFailed(reason.to_owned());
        return Refusal::from(to_wire::problem(&error)).into_response();
    }
    if let Some(what) = health.lost_names() {
        let detail = format!("the server stops, because its store has lost its place: {what}");
        return Refusal::new(ErrorCode::StorageFailed, detail).into_response();
    }
    if health.stopping() {
        return Refusal::from(to_wire::problem(&BusError::ShuttingDown)).into_response();
    }
    match waiting(health) {
        Some(detail) => Refusal::new(ErrorCode::StorageFailed, detail).into_response(),
        None => json(StatusCode::OK, "{\"status\":\"ready\"}".to_owned()),
    }
}

/// Why nothing is committed at the moment. Waits for no thread: it may be the one that hangs.
fn waiting(health: &Health) -> Option<String> {
    if let Some(reason) = health.retrying() {
        return Some(format!("a commit is tried again until it comes through: {reason}"));
    }
    let Stall { age, waits_for } = health.stall()?;
    Some(format!(
        "the commit under way has taken {:.1} s by now and waits for {waits_for}",
        age.as_secs_f64()
    ))
}
