//! `/os`: the messages of the CQRS loop over a WebSocket, one in each text frame, by the rules of the NDJSON socket.
//!
//! Browsers cannot send a token with the upgrade. Without one, the first message must be `Syscall.Authenticate`. A
//! later `Syscall.Authenticate` replaces the token of the connection, if the new one is of the same agent.

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use millrace_bus::BusError;
use millrace_kernel::{OsReceiver, OsSender, TokenError, shown_token};
use millrace_model::{OsId, OsMessage, Timestamp};
use millrace_wire::ErrorCode;
use millrace_wire::os::{Lenient, OsRefusal, encode, parse};
use tokio::time::{MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::access::{Caller, Refused};
use crate::app::{App, SharedApp};
use crate::connections::{Backlog, ConnectionFacts, ConnectionId, Door, ListedConnection};
use crate::edge::Edge;
use crate::fairness::{FrameMeter, Seat};
use crate::moved::Moved;
use crate::refusal::Refusal;
use crate::ws::Entrance;
use crate::ws::close::{ABOVE_SHARE, INCOMPLETE_FRAME, WsEnd, close_handshake};
use crate::ws::grant::CurrentGrant;
use crate::ws::keepalive::{Keepalive, KeepaliveStep};
use crate::ws::os_entrance::{Stamp, check_scope, enter};
use crate::ws::upgrade::{Socket, Upgrade};

/// Messages written together before they are flushed.
const SLICE_LINES: usize = 256;

pub(crate) async fn upgrade(
    State(app): State<SharedApp>,
    caller: Caller,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade?;
    if app.broker.health().stopping() {
        return Err(app.refusal(&BusError::ShuttingDown));
    }
    check_scope(&caller)?;
    let entrance = Entrance::of(&app.edge, &caller)?;
    Ok(upgrade.accept(async move |opened| {
        let mut caller = caller;
        let stamp = || app.kernel.sender().stamp();
        let entered = enter(&app.edge, &stamp, opened, entrance, &mut caller).await;
        let Some((socket, seat, first)) = entered else { return };
        run(&app, socket, caller, &seat, first).await;
    }))
}

/// Runs the connection. `first` is the message that authenticated it.
async fn run(app: &App, socket: Socket, caller: Caller, seat: &Seat, first: Option<OsMessage>) {
    let frames = socket.get_ref().meter().clone();
    let (mut sink, mut stream) = socket.split();
    let end = talk(app, &mut sink, &mut stream, caller, (seat, &frames), first).await;
    tracing::debug!(?end, "a connection of the loop ended");
    // Everything else has been said in messages of the loop.
    let last = match &end {
        WsEnd::Moved(moved) => Some(text(&moved.os_message(app.kernel.sender().stamp()))),
        _ => None,
    };
    close_handshake(end, last, sink, stream, app.edge.closing.clone()).await;
}

async fn talk(
    app: &App,
    sink: &mut SplitSink<Socket, Message>,
    stream: &mut SplitStream<Socket>,
    caller: Caller,
    (seat, frames): (&Seat, &FrameMeter),
    first: Option<OsMessage>,
) -> WsEnd {
    let Ok((sender, receiver)) = app.kernel.open(caller.by()).await else { return app.stopping_end() };
    let keepalive = Keepalive::default();
    let grant = CurrentGrant::new(caller.grant.clone());
    let facts = ConnectionFacts {
        agent: caller.agent().map(str::to_owned),
        peer: caller.peer.addr.to_string(),
        since: app.edge.clock.now().wall,
        namespace: None,
        backlog: Backlog::Loop(sender.backlog()),
    };
    let id = ConnectionId { door: Door::Loop, number: sender.number() };
    let listed = app.edge.connections.list(id, facts);
    let mut writing = pin!(write(app, sink, receiver, &keepalive));
    let reader =
        OsReader { app, caller, sender, grant: &grant, listed: &listed, keepalive: &keepalive, frames };
    let end = tokio::select! {
        end = reader.run(stream, first) => end,
        end = &mut writing => return end,
        end = grant.ended(&app.edge) => end,
        () = lost_lead(app) => return app.stopping_end(),
        () = app.edge.doubt.begun() => WsEnd::Moved(Moved::to(None)),
        () = seat.sent_away() => WsEnd::Crowded(ABOVE_SHARE),
        () = frames.sent_away() => WsEnd::Crowded(INCOMPLETE_FRAME),
        () = listed.sent_away() => WsEnd::Disconnected,
    };
    // The reader has ended, which the loop sees as a hang-up, so the queue of answers ends. Its answers are written
    // first.
    match end {
        WsEnd::Oversize { .. } | WsEnd::Ended(_) => match writing.await {
            WsEnd::Stopping | WsEnd::Moved(_) => end,
            worse => worse,
        },
        end => end,
    }
}

pub(super) fn binary() -> OsRefusal {
    OsRefusal::invalid_json("a binary frame: send text frames")
}

fn too_long(edge: &Edge) -> OsRefusal {
    OsRefusal::too_long(edge.settings.kernel.line_bytes_max)
}

pub(super) fn about(error: &TokenError, message: &OsMessage) -> OsRefusal {
    OsRefusal::new(error.code(), error.to_string()).about(message)
}

pub(super) fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_whitespace())
}

/// Audits refusals about access, as on every other way in; mistakes in messages are not audited.
pub(super) fn audit(edge: &Edge, caller: &Caller, refusal: &OsRefusal) {
    let code = match refusal.code {
        401 => ErrorCode::Unauthorized,
        403 => ErrorCode::Forbidden,
        429 => ErrorCode::RateLimited,
        _ => return,
    };
    let what = refusal.ty.as_ref().map_or("a message of /os", |ty| ty.as_str());
    let (agent, peer, why) = (caller.agent(), Some(caller.peer.addr), refusal.message.as_str());
    let (namespace, topic, trace) = (None, None, None);
    edge.refused(&Refused { code, agent, peer, what: &what, why, namespace, topic, trace });
}

/// Returns only when the server closes its connections because another one leads. An orderly stop ends the loop first,
/// and its last answers are still written.
async fn lost_lead(app: &App) {
    let mut closing = app.edge.closing.clone();
    let is_closing = closing.wait_for(|closing| *closing).await.is_ok();
    if !is_closing || app.moved(&BusError::ShuttingDown).is_none() {
        std::future::pending::<()>().await;
    }
}

struct OsReader<'a> {
    app: &'a App,
    caller: Caller,
    sender: OsSender,
    /// Watched for tokens that are removed or expire.
    grant: &'a CurrentGrant,
    listed: &'a ListedConnection,
    keepalive: &'a Keepalive,
    frames: &'a FrameMeter,
}

impl OsReader<'_> {
    async fn run(mut self, stream: &mut SplitStream<Socket>, first: Option<OsMessage>) -> WsEnd {
        if let Some(first) = first
            && let Err(end) = self.message(first).await
        {
            return end;
        }
        loop {
            self.keepalive.listen(false);
            self.sender.room().await;
            self.keepalive.listen(true);
            let arrived = stream.next().await;
            self.keepalive.beat();
            if let Some(Ok(message)) = &arrived {
                self.frames.read(message);
            }
            let taken = match arrived {
                Some(Ok(Message::Text(text))) => self.text(&text).await,
                Some(Ok(Message::Binary(_))) => self.refuse(binary()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
                Some(Ok(Message::Close(_))) => Err(WsEnd::Goodbye),
                Some(Err(error)) => match WsEnd::of(&error, self.app.edge.settings.frame_bytes_max) {
                    // Sent through the queue, so that it is the last answer and overtakes none.
                    end @ WsEnd::Oversize { .. } => self.refuse(too_long(&self.app.edge)).and(Err(end)),
                    end => Err(end),
                },
                None => Err(WsEnd::Gone),
            };
            if let Err(end) = taken {
                return end;
            }
        }
    }

    async fn text(&mut self, text: &str) -> Result<(), WsEnd> {
        if is_blank(text) {
            return Ok(());
        }
        match read(&self.app.edge, text, &|| self.sender.stamp()) {
            Ok(message) => self.message(message).await,
            Err(refusal) => self.refuse(refusal),
        }
    }

    async fn message(&mut self, message: OsMessage) -> Result<(), WsEnd> {
        if let Err(too_soon) = self.caller.charge(1) {
            return self.refuse(OsRefusal::new(429, too_soon.to_string()).about(&message));
        }
        if let Err(error) = self.identify(&message).await {
            return self.refuse(about(&error, &message));
        }
        let grant = self.caller.grant.as_deref();
        if let Some(why) = grant.and_then(|grant| grant.rights.refuse(&message)) {
            return self.refuse(OsRefusal::new(403, why).about(&message));
        }
        self.sender.send(message).await.map_err(|_| self.app.stopping_end())
    }

    /// Takes over the token that a message shows: from now on its rights and rates apply, and access lists see its
    /// agent.
    async fn identify(&mut self, message: &OsMessage) -> Result<(), TokenError> {
        let Some(token) = shown_token(message).filter(|_| !self.app.edge.tokens.is_open()) else {
            return Ok(());
        };
        let grant = self.app.edge.os_grant(&token)?;
        TokenError::check_change(self.caller.by().principal(), &grant.principal)?;
        self.grant.set(grant.clone());
        self.listed.set_agent(grant.principal.agent.as_str());
        self.caller.grant = Some(grant);
        // If the loop has ended, sending the next message fails as well.
        let _ = self.sender.identify(self.caller.by()).await;
        Ok(())
    }

    fn refuse(&self, refusal: OsRefusal) -> Result<(), WsEnd> {
        audit(&self.app.edge, &self.caller, &refusal);
        self.sender.answer(line(refusal, self.sender.stamp())).map_err(|_| self.app.stopping_end())
    }
}

pub(crate) fn read(edge: &Edge, text: &str, stamp: Stamp<'_>) -> Result<OsMessage, OsRefusal> {
    let kernel = &edge.settings.kernel;
    if text.len() > kernel.line_bytes_max {
        return Err(too_long(edge));
    }
    if !kernel.lenient_metadata {
        return parse(text.as_bytes(), None);
    }
    let (_, timestamp) = stamp();
    parse(text.as_bytes(), Some(Lenient { id: &|| stamp().0, timestamp }))
}

pub(super) fn line(refusal: OsRefusal, (id, timestamp): (OsId, Timestamp)) -> String {
    text(&refusal.into_message(id, timestamp))
}

/// The text of a message, without the final LF: a frame needs none.
pub(crate) fn text(message: &OsMessage) -> String {
    let mut line = Vec::new();
    encode(message, &mut line);
    line.pop();
    String::from_utf8(line).unwrap_or_default()
}

async fn write(
    app: &App,
    sink: &mut SplitSink<Socket, Message>,
    mut receiver: OsReceiver,
    keepalive: &Keepalive,
) -> WsEnd {
    let settings = &app.edge.settings;
    let every = Duration::from_millis(settings.ping_ms.max(1));
    let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed = 0;
    loop {
        let written = tokio::select! {
            line = receiver.next() => match line {
                Some(line) => within(app, answers(sink, &mut receiver, line)).await,
                None => return app.stopping_end(),
            },
            _ = ticks.tick() => match keepalive.check(&mut missed, settings.pings_missed_max) {
                KeepaliveStep::Fine => Ok(()),
                KeepaliveStep::Ping => within(app, sink.send(Message::Ping(bytes::Bytes::new()))).await,
                KeepaliveStep::Gone => return WsEnd::Dropped("it gave no sign of life"),
            },
        };
        if let Err(end) = written {
            return end;
        }
    }
}

/// Writes this answer and those that are queued, and flushes once.
async fn answers(
    sink: &mut SplitSink<Socket, Message>,
    receiver: &mut OsReceiver,
    first: String,
) -> Result<(), SocketError> {
    let mut bytes = first.len();
    sink.feed(Message::Text(first.into())).await?;
    for _ in 1..SLICE_LINES {
        let Some(line) = receiver.try_next() else { break };
        bytes += line.len();
        sink.feed(Message::Text(line.into())).await?;
    }
    sink.flush().await?;
    receiver.written(bytes);
    Ok(())
}

/// Ends the connection if a write takes longer than a slow reader is allowed.
async fn within(app: &App, write: impl Future<Output = Result<(), SocketError>>) -> Result<(), WsEnd> {
    match timeout(Duration::from_millis(app.edge.settings.slow_reader_ms), write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(WsEnd::Gone),
        Err(_) => {
            app.broker.count_dropped_slow();
            Err(WsEnd::Dropped("it did not read for too long"))
        }
    }
}
