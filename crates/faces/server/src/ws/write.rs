//! The writing direction: writes everything that is queued, then flushes once.

use std::time::Duration;

use futures_util::stream::SplitSink;
use futures_util::{FutureExt, SinkExt};
use millrace_broker::{Item, Received};
use millrace_bus::Reply;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::latencies::LeftAt;
use crate::to_wire;
use crate::ws::batches::DeliveryBatches;
use crate::ws::close::WsEnd;
use crate::ws::connection::Connection;
use crate::ws::keepalive::KeepaliveStep;
use crate::ws::upgrade::Socket;

/// Written between two checks that the peer still reads.
const SLICE_ITEMS: usize = 512;
const SLICE_BYTES: usize = 256 << 10;

type Sink = SplitSink<Socket, Message>;

pub(super) async fn run(
    connection: &Connection<'_>,
    sink: &mut Sink,
    mut own_answers: mpsc::Receiver<String>,
) -> WsEnd {
    let mut writer = FrameWriter { connection, sink, items: Vec::new(), batches: DeliveryBatches::default() };
    match writer.run(&mut own_answers).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

struct FrameWriter<'a> {
    connection: &'a Connection<'a>,
    sink: &'a mut Sink,
    items: Vec<Item>,
    batches: DeliveryBatches,
}

enum Never {}

impl FrameWriter<'_> {
    async fn run(&mut self, own_answers: &mut mpsc::Receiver<String>) -> Result<Never, WsEnd> {
        let settings = &self.connection.app.edge.settings;
        let every = Duration::from_millis(settings.ping_ms.max(1));
        let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        let mut closing = self.connection.app.edge.closing.clone();
        loop {
            let bus = &self.connection.bus;
            tokio::select! {
                taken = bus.receive(&mut self.items, SLICE_ITEMS, SLICE_BYTES) => self.items(taken).await?,
                Some(text) = own_answers.recv() => self.answers(text, own_answers).await?,
                _ = ticks.tick() => match self.connection.keepalive.check(&mut missed, settings.pings_missed_max) {
                    KeepaliveStep::Fine => {}
                    KeepaliveStep::Ping => self.send(Message::Ping(bytes::Bytes::new())).await?,
                    KeepaliveStep::Gone => return Err(WsEnd::Dropped("it gave no sign of life")),
                },
                () = closing.wait_for(|closing| *closing).map(drop) => return Err(self.finish().await?),
            }
        }
    }

    async fn items(&mut self, taken: Received) -> Result<(), WsEnd> {
        let Received::Items { bytes } = taken else {
            return Err(match self.connection.app.broker.health().stopping() {
                true => self.connection.app.stopping_end(),
                false => WsEnd::Dropped("it did not read what it asked for"),
            });
        };
        let connection = self.connection;
        let unanswered = &connection.unanswered;
        let (items, sink, batches) = (&mut self.items, &mut *self.sink, &mut self.batches);
        let left = LeftAt::now(&connection.app.edge.clock);
        let write = async {
            for item in items.drain(..) {
                let request = match &item {
                    Item::Reply { request, .. } => unanswered.answer(*request),
                    _ => None,
                };
                connection.note(&item, request.as_ref(), left);
                batches.note(&item, request.as_ref());
                let moved = match &item {
                    Item::Reply { reply: Reply::Refused(error), .. } => connection.app.moved(error),
                    _ => None,
                };
                let (gathered, item) = batches.take(item, connection.payload_sha256);
                let text = match (moved, item) {
                    (Some(moved), _) => Some(to_wire::moved(&moved, request.as_ref())),
                    (None, Some(item)) => to_wire::frame(item, request.as_ref(), connection.payload_sha256),
                    (None, None) => None,
                };
                for text in gathered.into_iter().chain(text) {
                    sink.feed(Message::Text(text.into())).await?;
                }
            }
            if let Some(text) = batches.finish() {
                sink.feed(Message::Text(text.into())).await?;
            }
            sink.flush().await
        };
        within(self.connection, write).await?;
        self.connection.bus.written(bytes);
        Ok(())
    }

    async fn answers(&mut self, first: String, more: &mut mpsc::Receiver<String>) -> Result<(), WsEnd> {
        let sink = &mut *self.sink;
        let write = async {
            sink.feed(Message::Text(first.into())).await?;
            while let Ok(text) = more.try_recv() {
                sink.feed(Message::Text(text.into())).await?;
            }
            sink.flush().await
        };
        within(self.connection, write).await
    }

    async fn send(&mut self, message: Message) -> Result<(), WsEnd> {
        within(self.connection, self.sink.send(message)).await
    }

    /// Writes the rest of the outbox: the engine has stopped and will add nothing.
    async fn finish(&mut self) -> Result<WsEnd, WsEnd> {
        while let Some(taken) = self.connection.bus.try_receive(&mut self.items, SLICE_ITEMS, SLICE_BYTES) {
            self.items(taken).await?;
        }
        Ok(self.connection.app.stopping_end())
    }
}

/// Ends the connection if a write takes longer than a slow reader is allowed.
async fn within(
    connection: &Connection<'_>,
    write: impl Future<Output = Result<(), SocketError>>,
) -> Result<(), WsEnd> {
    match timeout(Duration::from_millis(connection.app.edge.settings.slow_reader_ms), write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(WsEnd::Gone),
        Err(_) => {
            connection.app.broker.count_dropped_slow();
            Err(WsEnd::Dropped("it did not read for too long"))
        }
    }
}
