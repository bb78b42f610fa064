//! The WebSocket edge: one task per connection, reading and writing side by side.
//!
//! ```text
//! socket -> read: parse many frames -> BusConnection::send (pauses: outbox full, too much unanswered, owner busy)
//! socket <- write: feed many frames, flush once <- BusConnection::receive, and what the reader answers itself
//! ```

mod authenticate;
mod close;
mod connection;
mod gate;
mod grant;
mod keepalive;
mod metered;
pub(crate) mod os;
mod read;
mod small_reads;
mod unanswered;
mod upgrade;
mod write;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::BusError;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::edge::Edge;
use crate::fairness::Seat;
use crate::http::page::PAYLOAD_SHA256;
use crate::params::Params;
use crate::refusal::{Refusal, overloaded};
use crate::to_wire;
use crate::ws::authenticate::authenticate;
use crate::ws::connection::UpgradeParams;
use crate::ws::upgrade::Upgrade;

/// `/`: opens a WebSocket if the client asks for one, otherwise returns a hint for people.
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
    let asked =
        UpgradeParams { namespace: params.namespace()?, payload_sha256: params.flag(PAYLOAD_SHA256)? };
    let upgrade = upgrade?;
    if app.broker.health().stopping() {
        return Err(to_wire::problem(&BusError::ShuttingDown).into());
    }
    let entrance = Entrance::of(&app.edge, &caller)?;
    Ok(upgrade.accept(async move |opened| {
        let mut caller = caller;
        let (socket, seat) = match entrance {
            Entrance::Known(seat) => (opened.whole(&app.edge, &caller).await, seat),
            Entrance::Unauthenticated(seat) => {
                let introduce = async |sink: &mut _, stream: &mut _, caller: &mut _| {
                    authenticate::introduce(&app.edge, sink, stream, caller, asked.namespace.as_str()).await
                };
                match authenticate(&app.edge, opened, seat, &mut caller, introduce).await {
                    Some(known) => (known.socket, known.seat),
                    None => return,
                }
            }
        };
        connection::run(&app, socket, asked, caller, &seat).await;
    }))
}

/// How a WebSocket begins.
enum Entrance {
    /// The upgrade brought a token, or none is needed.
    Known(Seat),
    /// The peer has to authenticate first.
    Unauthenticated(Seat),
}

impl Entrance {
    fn of(edge: &Edge, caller: &Caller) -> Result<Entrance, Refusal> {
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
