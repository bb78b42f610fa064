//! A WebSocket that brought no token, until it authenticates: few seats, small frames, little time. The engine learns
//! of a connection only after that.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use millrace_wire::{AuthToken, ClientFrame, ClientRequest, ErrorCode, FrameError, write_ok, write_pong};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::access::{Caller, Refused};
use crate::edge::Edge;
use crate::fairness::{EvictionReason, Seat};
use crate::ws::close::{WsEnd, close_handshake};
use crate::ws::small_reads::SmallReads;
use crate::ws::upgrade::{Opened, Socket};

pub(super) type SmallSink = SplitSink<WebSocketStream<SmallReads>, Message>;
pub(super) type SmallStream = SplitStream<WebSocketStream<SmallReads>>;

/// A connection that has authenticated: the socket, now for frames of the usual size, a seat among the authenticated,
/// and the result of `introduce`.
pub(super) struct Authenticated<T> {
    pub(super) socket: Socket,
    pub(super) seat: Seat,
    pub(super) found: T,
}

/// Runs `introduce` until it has set the caller's grant, or the connection has to be closed. `waiting_seat` is its seat
/// among the unauthenticated.
pub(super) async fn authenticate<T>(
    edge: &Edge,
    opened: Opened,
    waiting_seat: Seat,
    caller: &mut Caller,
    introduce: impl AsyncFnOnce(
        &mut SmallSink,
        &mut SmallStream,
        &mut Caller,
    ) -> Result<(T, Seat), (WsEnd, Option<String>)>,
) -> Option<Authenticated<T>> {
    let settings = &edge.settings;
    let socket = opened.small(settings.unauthenticated_frame_bytes_max).await;
    let (mut sink, mut stream) = socket.split();
    let mut closing = edge.closing.clone();
    let limit = Duration::from_millis(settings.auth_ms_max);
    let introduced = tokio::select! {
        introduced = introduce(&mut sink, &mut stream, caller) => introduced,
        () = waiting_seat.sent_away() => Err((WsEnd::Crowded("others need the place: send the token sooner"), None)),
        () = closing.wait_for(|closing| *closing).map(drop) => Err((WsEnd::Stopping, None)),
        () = tokio::time::sleep(limit) => {
            edge.evictions.count(EvictionReason::AuthTimeout, &caller.key());
            Err((WsEnd::Unauthenticated, None))
        }
    };
    match introduced {
        Ok((found, seat)) => {
            let small = sink.reunite(stream).ok()?;
            let (stream, ahead) = small.into_inner().into_parts();
            let socket = Opened::new(stream, ahead).whole(edge, caller).await;
            Some(Authenticated { socket, seat, found })
        }
        Err((end, frame)) => {
            tracing::debug!(?end, "a connection ended before it authenticated");
            let handshake = close_handshake(end, frame, sink, stream, edge.closing.clone());
            if waiting_seat.must_hurry() {
                // Only sent if that takes no waiting: closing connections must not pile up.
                let _ = handshake.now_or_never();
            } else {
                handshake.await;
            }
            None
        }
    }
}

/// Authenticates a connection of the bus: answers PING and AUTH, refuses everything else.
pub(super) async fn introduce(
    edge: &Edge,
    sink: &mut SmallSink,
    stream: &mut SmallStream,
    caller: &mut Caller,
    namespace: &str,
) -> Result<((), Seat), (WsEnd, Option<String>)> {
    let bytes_max = edge.settings.unauthenticated_frame_bytes_max;
    loop {
        let text = match stream.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                refuse(edge, sink, caller, namespace, "a frame", &FrameError::binary()).await?;
                continue;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Close(_))) => return Err((WsEnd::Goodbye, None)),
            Some(Err(error)) => {
                let end = WsEnd::of_unauthenticated(&error, bytes_max);
                let frame = end.frame();
                return Err((end, frame));
            }
            None => return Err((WsEnd::Gone, None)),
        };
        let ClientFrame { rid, request } = match ClientFrame::parse(&text) {
            Ok(frame) => frame,
            Err(error) => {
                refuse(edge, sink, caller, namespace, "a frame", &error).await?;
                continue;
            }
        };
        let mut answer = String::new();
        let what = request.type_name();
        match &request {
            ClientRequest::Ping => write_pong(&mut answer, rid.as_ref()),
            ClientRequest::Auth(token) => match enter(edge, caller, token) {
                Ok(seat) => {
                    write_ok(&mut answer, what, rid.as_ref());
                    send(sink, answer).await?;
                    return Ok(((), seat));
                }
                Err(error) => {
                    let is_full = error.code == ErrorCode::LimitReached;
                    refuse(edge, sink, caller, namespace, what, &error.rid(rid)).await?;
                    if is_full {
                        return Err((WsEnd::Crowded("all connections are taken"), None));
                    }
                    continue;
                }
            },
            _ => {
                // Refused frames count for the rate too, or an unauthenticated peer could send without end.
                let error = charge(caller).err().unwrap_or_else(|| {
                    FrameError::new(
                        ErrorCode::Unauthorized,
                        "send a token first: {\"type\":\"AUTH\",\"token\":TOKEN}",
                    )
                });
                refuse(edge, sink, caller, namespace, what, &error.rid(rid)).await?;
                continue;
            }
        }
        send(sink, answer).await?;
    }
}

fn charge(caller: &Caller) -> Result<(), FrameError> {
    caller.charge(1).map_err(|too_soon| FrameError::new(ErrorCode::RateLimited, too_soon.to_string()))
}

/// Sets the caller's grant by its token, and takes a seat for its agent.
fn enter(edge: &Edge, caller: &mut Caller, token: &AuthToken) -> Result<Seat, FrameError> {
    charge(caller)?;
    let grant = edge.tokens.find(token.secret());
    let grant = grant.map_err(|not| FrameError::new(ErrorCode::Unauthorized, not.as_str()))?;
    let known = Caller { grant: Some(grant), ..caller.clone() };
    let seat = edge.seats.claim(known.key()).ok_or_else(|| {
        let max = edge.settings.connections_max;
        FrameError::new(ErrorCode::LimitReached, format!("all {max} connections are taken: try again later"))
    })?;
    *caller = known;
    Ok(seat)
}

async fn refuse(
    edge: &Edge,
    sink: &mut SmallSink,
    caller: &Caller,
    namespace: &str,
    what: &str,
    error: &FrameError,
) -> Result<(), (WsEnd, Option<String>)> {
    let (code, why) = (error.code, error.message.as_str());
    let (agent, peer, namespace) = (caller.agent(), Some(caller.peer.addr), Some(namespace));
    edge.refused(&Refused { code, agent, peer, what: &what, why, namespace, topic: None, trace: None });
    let mut text = String::new();
    error.write(&mut text);
    send(sink, text).await
}

async fn send(sink: &mut SmallSink, text: String) -> Result<(), (WsEnd, Option<String>)> {
    sink.send(Message::Text(text.into())).await.map_err(|_| (WsEnd::Gone, None))
}
