//! The WebSocket edge: one task per connection, reading and writing side by side.
//!
//! ```text
//! socket -> read: parse many frames -> BusConnection::send (pauses: outbox full, too much unanswered, owner busy)
//! socket <- write: feed many frames, flush once <- BusConnection::receive, and what the reader answers itself
//! ```

mod authenticate;
mod batches;
pub(crate) mod close;
mod connection;
mod gate;
mod grant;
mod keepalive;
mod metered;
pub(crate) mod os;
pub(crate) mod os_entrance;
mod read;
mod small_reads;
mod unanswered;
pub(crate) mod upgrade;
mod write;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::BusError;
use millrace_model::Namespace;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::edge::Edge;
use crate::fairness::Seat;
use crate::http::console;
use crate::http::page::PAYLOAD_SHA256;
use crate::params::Params;
use crate::refusal::{Refusal, overloaded};
use crate::ws::authenticate::authenticate;
use crate::ws::connection::UpgradeParams;
use crate::ws::upgrade::{Opened, Socket, Upgrade};

/// `/`: opens a WebSocket if the client asks for one, otherwise returns a hint for people.
pub(crate) async fn root(
    state: State<SharedApp>,
    caller: Caller,
    headers: HeaderMap,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    if wants_socket(&headers) {
        return self::upgrade(state, caller, params, upgrade).await;
    }
    if console::wants_page(&state.edge, &headers) {
        return Ok(console::redirect("console/"));
    }
    Ok(hint())
}

pub(crate) fn wants_socket(headers: &HeaderMap) -> bool {
    let asked_for = headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    asked_for.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// The answer for people.
pub(crate) fn hint() -> Response {
    let text = "Millrace, a durable event broker.\n\nWebSocket: this address, or /ws; the CQRS loop: /os\n\
        HTTP: /topics /dead-letters /stats /metrics /healthz /readyz /openapi.json /asyncapi.json\n";
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

pub(crate) async fn upgrade(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let asked =
        UpgradeParams { namespace: params.namespace()?, payload_sha256: params.flag(PAYLOAD_SHA256)? };
    let upgrade = upgrade?;
    if app.broker.health().stopping() {
        return Err(app.refusal(&BusError::ShuttingDown));
    }
    let entrance = Entrance::of(&app.edge, &caller)?;
    Ok(upgrade.accept(async move |opened| {
        let mut caller = caller;
        let entered = enter(&app.edge, opened, entrance, &mut caller, &asked.namespace).await;
        let Some((socket, seat)) = entered else { return };
        connection::run(&app, socket, asked, caller, &seat).await;
    }))
}

/// Lets a connection of the bus authenticate, if it has to. Returns its socket and its seat; `None` if it was closed.
pub(crate) async fn enter(
    edge: &Edge,
    opened: Opened,
    entrance: Entrance,
    caller: &mut Caller,
    namespace: &Namespace,
) -> Option<(Socket, Seat)> {
    match entrance {
        Entrance::Known(seat) => Some((opened.whole(edge, caller).await, seat)),
        Entrance::Unauthenticated(seat) => {
            let introduce = async |sink: &mut _, stream: &mut _, caller: &mut _| {
                authenticate::introduce(edge, sink, stream, caller, namespace.as_str()).await
            };
            let known = authenticate(edge, opened, seat, caller, introduce).await?;
            Some((known.socket, known.seat))
        }
    }
}

/// How a WebSocket begins.
pub(crate) enum Entrance {
    /// The upgrade brought a token, or none is needed.
    Known(Seat),
    /// The peer has to authenticate first.
    Unauthenticated(Seat),
}

impl Entrance {
    pub(crate) fn of(edge: &Edge, caller: &Caller) -> Result<Entrance, Refusal> {
        if !edge.tokens.is_open() && caller.grant.is_none() {
            let seat = edge.unauthenticated.claim(caller.key());
            return seat.map(Entrance::Unauthenticated).ok_or_else(|| full(edge));
        }
        edge.seats.claim(caller.key()).map(Entrance::Known).ok_or_else(|| full(edge))
    }
}

fn full(edge: &Edge) -> Refusal {
    let max = edge.settings.connections_max;
    overloaded(format!(
        "all {max} connections are taken, and no caller has more than this one: try again later"
    ))
}
