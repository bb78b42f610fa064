//! The WebSocket edge: one task per connection, reading and writing side by side.
//!
//! ```text
//! socket -> read: parse many frames -> Link::ask   (pauses: outbox full, too much unanswered, owner busy)
//! socket <- write: feed many frames, flush once <- Link::take, and what the reader answers itself
//! ```

mod close;
mod connection;
mod gate;
pub(crate) mod os;
mod pulse;
mod read;
mod unanswered;
mod upgrade;
mod write;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::BusError;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::to_wire;
use crate::ws::upgrade::Upgrade;

/// `/`: WebSocket clients connect here, people get a hint.
pub(crate) async fn root(
    state: State<SharedApp>,
    caller: Caller,
    headers: HeaderMap,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let asked_for = headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    if asked_for.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
        return self::upgrade(state, caller, params, upgrade).await;
    }
    let text = "Millrace, a durable event broker.\n\nWebSocket: this address, or /ws; the CQRS loop: /os\n\
        HTTP: /topics /dead-letters /stats /metrics /healthz /readyz /openapi.json /asyncapi.json\n";
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

pub(crate) async fn upgrade(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let namespace = params.namespace()?;
    let upgrade = upgrade?;
    if app.runtime.health().stopping() {
        return Err(to_wire::problem(&BusError::ShuttingDown).into());
    }
    let Ok(permit) = app.connections.clone().try_acquire_owned() else {
        let max = app.settings.connections_max as u64;
        let error = BusError::LimitReached { what: "connections", max };
        return Err(Refusal::from(to_wire::problem(&error)).status(StatusCode::SERVICE_UNAVAILABLE));
    };
    Ok(upgrade.accept(app.settings.frame_bytes_max, async move |socket| {
        connection::run(&app, socket, namespace, caller).await;
        drop(permit);
    }))
}
