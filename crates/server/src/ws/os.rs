//! `/os`: the messages of the CQRS loop over a WebSocket, one in each text frame, by the rules of the NDJSON socket.
//!
//! Without a token in the upgrade, which browsers cannot send, the first message must be `Syscall.Authenticate`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use millrace_actors::{OsReceiver, OsSender};
use millrace_bus::BusError;
use millrace_model::{OsId, OsMessage, Timestamp};
use millrace_wire::os::{Lenient, OsRefusal, encode, parse};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::access::{Caller, Grant, Scope};
use crate::app::{App, SharedApp};
use crate::refusal::Refusal;
use crate::to_wire;
use crate::ws::close::{End, last_words};
use crate::ws::pulse::{Check, Pulse};
use crate::ws::upgrade::{Socket, Upgrade};

/// Answers the reader gives itself, waiting to be written: the reader waits.
const OWN_ANSWERS_MAX: usize = 64;
/// Written together before they are flushed.
const SLICE_LINES: usize = 256;

const WHO_ARE_YOU: &str =
    "Authentication required: First message must be Syscall.Authenticate with a valid token";
const AUTHENTICATE: &str = "Syscall.Authenticate";

pub(crate) async fn upgrade(
    State(app): State<SharedApp>,
    caller: Caller,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade?;
    if app.runtime.health().stopping() {
        return Err(to_wire::problem(&BusError::ShuttingDown).into());
    }
    if let Some(grant) = caller.grant.as_deref().filter(|grant| !grant.has(Scope::Os)) {
        let why = format!("the token of agent {} has no scope {}", grant.principal.agent, Scope::Os);
        return Err(Refusal::new(millrace_wire::ErrorCode::Forbidden, why));
    }
    let Ok(permit) = app.connections.clone().try_acquire_owned() else {
        let max = app.settings.connections_max as u64;
        let error = BusError::LimitReached { what: "connections", max };
        return Err(Refusal::from(to_wire::problem(&error)).status(StatusCode::SERVICE_UNAVAILABLE));
    };
    Ok(upgrade.accept(app.settings.frame_bytes_max, async move |socket| {
        run(&app, socket, caller).await;
        drop(permit);
    }))
}

async fn run(app: &App, socket: Socket, caller: Caller) {
    let (mut sink, mut stream) = socket.split();
    let end = talk(app, &mut sink, &mut stream, caller).await;
    tracing::debug!(?end, "a connection of the loop ended");
    last_words(end, sink, stream, app.closing.clone()).await;
}

async fn talk(
    app: &App,
    sink: &mut SplitSink<Socket, Message>,
    stream: &mut SplitStream<Socket>,
    mut caller: Caller,
) -> End {
    let mut first = None;
    if !app.tokens.is_open() && caller.grant.is_none() {
        let limit = Duration::from_millis(app.settings.auth_ms_max);
        match timeout(limit, introduce(app, sink, stream, &mut caller)).await {
            Ok(Ok(message)) => first = Some(message),
            Ok(Err(end)) => return end,
            Err(_) => return End::Unauthenticated,
        }
    }
    let Ok((sender, receiver)) = app.os.open(caller.by()).await else { return End::Stopping };
    let pulse = Pulse::default();
    let (answers, own_answers) = mpsc::channel(OWN_ANSWERS_MAX);
    let grant = caller.grant.clone();
    let reader = Reader { app, caller, sender, answers, pulse: &pulse };
    tokio::select! {
        end = reader.run(stream, first) => end,
        end = write(app, sink, receiver, own_answers, &pulse) => end,
        end = revoked(app, grant) => end,
    }
}

/// The first message of a connection that brought no token.
async fn introduce(
    app: &App,
    sink: &mut SplitSink<Socket, Message>,
    stream: &mut SplitStream<Socket>,
    caller: &mut Caller,
) -> Result<OsMessage, End> {
    loop {
        let text = match stream.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Binary(_))) => return Err(End::Unauthenticated),
            Some(Ok(Message::Close(_))) => return Err(End::Goodbye),
            Some(Err(error)) => return Err(End::of(&error, app.settings.frame_bytes_max)),
            None => return Err(End::Gone),
        };
        let stamp = || app.os.link().stamp();
        let refusal = match read(app, &text, &stamp) {
            Ok(message) => match grant_of(app, &message) {
                Some(grant) => {
                    caller.grant = Some(grant);
                    return Ok(message);
                }
                None => OsRefusal::new(401, WHO_ARE_YOU).about(&message),
            },
            Err(refusal) => refusal,
        };
        let line = line(refusal, stamp());
        // It is told why before it is sent away; should it not hear it, it is sent away all the same.
        let _ = sink.send(Message::Text(line.into())).await;
        return Err(End::Unauthenticated);
    }
}

fn grant_of(app: &App, message: &OsMessage) -> Option<Arc<Grant>> {
    #[derive(serde::Deserialize)]
    struct Shown {
        token: String,
    }
    if message.ty.as_str() != AUTHENTICATE {
        return None;
    }
    let Shown { token } = serde_json::from_str(message.data.as_str()).ok()?;
    app.tokens.find(&token).filter(|grant| grant.has(Scope::Os))
}

struct Reader<'a> {
    app: &'a App,
    caller: Caller,
    sender: OsSender,
    answers: mpsc::Sender<String>,
    pulse: &'a Pulse,
}

impl Reader<'_> {
    async fn run(self, stream: &mut SplitStream<Socket>, first: Option<OsMessage>) -> End {
        if let Some(first) = first
            && let Err(end) = self.message(first).await
        {
            return end;
        }
        loop {
            self.pulse.listen(false);
            self.sender.room().await;
            self.pulse.listen(true);
            let arrived = stream.next().await;
            self.pulse.beat();
            let taken = match arrived {
                Some(Ok(Message::Text(text))) => self.text(&text).await,
                Some(Ok(Message::Binary(_))) => {
                    self.refuse(OsRefusal::invalid_json("a binary frame: send text frames")).await
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
                Some(Ok(Message::Close(_))) => Err(End::Goodbye),
                Some(Err(error)) => Err(End::of(&error, self.app.settings.frame_bytes_max)),
                None => Err(End::Gone),
            };
            if let Err(end) = taken {
                return end;
            }
        }
    }

    async fn text(&self, text: &str) -> Result<(), End> {
        if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
            return Ok(());
        }
        match read(self.app, text, &|| self.sender.stamp()) {
            Ok(message) => self.message(message).await,
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    async fn message(&self, message: OsMessage) -> Result<(), End> {
        if let Err(too_soon) = self.caller.charge(1) {
            return self.refuse(OsRefusal::new(429, too_soon.to_string()).about(&message)).await;
        }
        let grant = self.caller.grant.as_deref();
        if let Some(why) = grant.and_then(|grant| grant.rights.refuse(&message)) {
            return self.refuse(OsRefusal::new(403, why).about(&message)).await;
        }
        self.sender.send(message).await.map_err(|_| End::Stopping)
    }

    async fn refuse(&self, refusal: OsRefusal) -> Result<(), End> {
        // The writer is gone only when the connection ends anyway.
        self.answers.send(line(refusal, self.sender.stamp())).await.map_err(|_| End::Gone)
    }
}

fn read(app: &App, text: &str, stamp: &dyn Fn() -> (OsId, Timestamp)) -> Result<OsMessage, OsRefusal> {
    let os = &app.settings.os;
    if text.len() > os.line_bytes_max {
        return Err(OsRefusal::too_long(os.line_bytes_max));
    }
    if !os.lenient_metadata {
        return parse(text.as_bytes(), None);
    }
    let (_, timestamp) = stamp();
    parse(text.as_bytes(), Some(Lenient { id: &|| stamp().0, timestamp }))
}

/// As it is written: a frame needs no LF.
fn line(refusal: OsRefusal, (id, timestamp): (OsId, Timestamp)) -> String {
    let mut line = Vec::new();
    encode(&refusal.into_message(id, timestamp), &mut line);
    line.pop();
    String::from_utf8(line).unwrap_or_default()
}

async fn write(
    app: &App,
    sink: &mut SplitSink<Socket, Message>,
    mut receiver: OsReceiver,
    mut own_answers: mpsc::Receiver<String>,
    pulse: &Pulse,
) -> End {
    let settings = &app.settings;
    let every = Duration::from_millis(settings.ping_ms.max(1));
    let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed = 0;
    loop {
        let written = tokio::select! {
            line = receiver.next() => match line {
                Some(line) => within(app, answers(sink, &mut receiver, line)).await,
                None => return End::Stopping,
            },
            Some(line) = own_answers.recv() => within(app, sink.send(Message::Text(line.into()))).await,
            _ = ticks.tick() => match pulse.check(&mut missed, settings.pings_missed_max) {
                Check::Fine => Ok(()),
                Check::Ping => within(app, sink.send(Message::Ping(bytes::Bytes::new()))).await,
                Check::Gone => return End::Dropped("it gave no sign of life"),
            },
        };
        if let Err(end) = written {
            return end;
        }
    }
}

/// This one and those that are there already, flushed once.
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

/// A write that takes longer than a reader may be slow ends the connection.
async fn within(app: &App, write: impl Future<Output = Result<(), SocketError>>) -> Result<(), End> {
    match timeout(Duration::from_millis(app.settings.slow_reader_ms), write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => {
            app.runtime.count_dropped_slow();
            Err(End::Dropped("it did not read for too long"))
        }
    }
}

/// Ends only for a connection whose token was taken away.
async fn revoked(app: &App, grant: Option<Arc<Grant>>) -> End {
    let mut reloads = app.reloads.subscribe();
    while !grant.as_deref().is_some_and(Grant::is_revoked) {
        if reloads.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
    End::Revoked
}
