//! How a WebSocket of the CQRS loop begins: with a token that the upgrade brought, or with `Syscall.Authenticate` as its
//! first message.

use futures_util::{SinkExt, StreamExt};
use millrace_kernel::{TokenError, shown_token};
use millrace_model::{OsId, OsMessage, Timestamp};
use millrace_wire::ErrorCode;
use millrace_wire::os::OsRefusal;
use tokio_tungstenite::tungstenite::Message;

use crate::access::{Caller, Scope};
use crate::edge::Edge;
use crate::fairness::Seat;
use crate::refusal::Refusal;
use crate::ws::Entrance;
use crate::ws::authenticate::{SmallSink, SmallStream, authenticate};
use crate::ws::close::WsEnd;
use crate::ws::os::{about, audit, binary, is_blank, line, read};
use crate::ws::upgrade::{Opened, Socket};

const WHO_ARE_YOU: &str =
    "Authentication required: First message must be Syscall.Authenticate with a valid token";
/// For the closing frame, which has room for a short sentence only.
const NOT_INTRODUCED: &str = "the first message must be Syscall.Authenticate with a valid token";
const NO_SCOPE: &str = "the token has no scope os";
const EXPIRED: &str = "the token has expired";

/// Refuses a token that is not for the loop. A caller without one has to authenticate.
pub(crate) fn check_scope(caller: &Caller) -> Result<(), Refusal> {
    let Some(grant) = caller.grant.as_deref().filter(|grant| !grant.has(Scope::Os)) else { return Ok(()) };
    let why = format!("the token of agent {} has no scope {}", grant.principal.agent, Scope::Os);
    Err(Refusal::new(ErrorCode::Forbidden, why))
}

/// Makes the id and time of a message.
pub(crate) type Stamp<'a> = &'a (dyn Fn() -> (OsId, Timestamp) + Sync);

/// Lets a connection of the loop authenticate, if it has to. Returns its socket, its seat and the message that
/// authenticated it; `None` if it was closed.
pub(crate) async fn enter(
    edge: &Edge,
    stamp: Stamp<'_>,
    opened: Opened,
    entrance: Entrance,
    caller: &mut Caller,
) -> Option<(Socket, Seat, Option<OsMessage>)> {
    match entrance {
        Entrance::Known(seat) => Some((opened.whole(edge, caller).await, seat, None)),
        Entrance::Unauthenticated(seat) => {
            let introduce = async |sink: &mut _, stream: &mut _, caller: &mut _| {
                introduce(edge, stamp, sink, stream, caller).await.map_err(|end| (end, None))
            };
            let known = authenticate(edge, opened, seat, caller, introduce).await?;
            Some((known.socket, known.seat, Some(known.found)))
        }
    }
}

/// Reads the first message of a connection that brought no token.
async fn introduce(
    edge: &Edge,
    stamp: Stamp<'_>,
    sink: &mut SmallSink,
    stream: &mut SmallStream,
    caller: &mut Caller,
) -> Result<(OsMessage, Seat), WsEnd> {
    let bytes_max = edge.settings.unauthenticated_frame_bytes_max;
    loop {
        let text = match stream.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Binary(_))) => {
                return away(edge, stamp, sink, caller, binary(), WsEnd::SentAway(NOT_INTRODUCED)).await;
            }
            Some(Ok(Message::Close(_))) => return Err(WsEnd::Goodbye),
            Some(Err(error)) => match WsEnd::of_unauthenticated(&error, bytes_max) {
                end @ WsEnd::UnauthenticatedOversize { .. } => {
                    return away(edge, stamp, sink, caller, OsRefusal::too_long(bytes_max), end).await;
                }
                end => return Err(end),
            },
            None => return Err(WsEnd::Gone),
        };
        if is_blank(&text) {
            continue;
        }
        let (refusal, why) = match read(edge, &text, stamp) {
            Ok(message) => match shown_token(&message).map(|token| edge.os_grant(&token)) {
                Some(Ok(grant)) => {
                    caller.grant = Some(grant);
                    let Some(seat) = edge.seats.claim(caller.key()) else {
                        let refusal = OsRefusal::new(503, "all connections are taken: try again later");
                        let end = WsEnd::Crowded("all connections are taken");
                        return away(edge, stamp, sink, caller, refusal.about(&message), end).await;
                    };
                    return Ok((message, seat));
                }
                Some(Err(error @ TokenError::NoScope { .. })) => (about(&error, &message), NO_SCOPE),
                Some(Err(error @ TokenError::Expired)) => (about(&error, &message), EXPIRED),
                _ => (OsRefusal::new(401, WHO_ARE_YOU).about(&message), NOT_INTRODUCED),
            },
            Err(refusal) => (refusal, NOT_INTRODUCED),
        };
        return away(edge, stamp, sink, caller, refusal, WsEnd::SentAway(why)).await;
    }
}

/// Sends the refusal and ends the connection, whether or not the peer receives it.
async fn away(
    edge: &Edge,
    stamp: Stamp<'_>,
    sink: &mut SmallSink,
    caller: &Caller,
    refusal: OsRefusal,
    end: WsEnd,
) -> Result<(OsMessage, Seat), WsEnd> {
    audit(edge, caller, &refusal);
    let line = line(refusal, stamp());
    let _ = sink.send(Message::Text(line.into())).await;
    Err(end)
}
