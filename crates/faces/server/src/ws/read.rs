//! The reading direction: parses every frame that has arrived and hands the requests to the engine together.

use std::time::Instant;

use futures_util::stream::SplitStream;
use futures_util::{FutureExt, StreamExt};
use millrace_bus::Request;
use millrace_wire::{ClientFrame, ClientRequest, FrameError, write_ok, write_pong};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::from_wire::{self, TopicKeys};
use crate::observe::TracedPublish;
use crate::to_wire::UnansweredRequest;
use crate::ws::close::WsEnd;
use crate::ws::connection::Connection;
use crate::ws::gate::{Gate, group, topic, trace};
use crate::ws::unanswered::NO_ANSWER;
use crate::ws::upgrade::Socket;

/// When the frames taken so far have this size, they are handed over before more are read.
const SLICE_BYTES: usize = 256 << 10;

/// The outcome of one frame.
enum FrameOutcome {
    Request(u64, Request),
    /// The edge answers the frame itself.
    Answer(String),
    Nothing,
}

/// Runs until the connection ends. While it waits for anything else the socket is not read, so a client that is too
/// fast feels it in its own writes.
pub(super) async fn run(
    connection: &Connection<'_>,
    stream: &mut SplitStream<Socket>,
    answers: mpsc::Sender<String>,
) -> WsEnd {
    let mut reader = FrameReader {
        connection,
        topics: TopicKeys::of(connection.namespace.clone()),
        gate: Gate::new(connection),
        answers,
    };
    let mut requests = Vec::new();
    loop {
        connection.keepalive.listen(false);
        connection.bus.relieved().await;
        connection.unanswered.room().await;
        connection.keepalive.listen(true);
        let mut next = stream.next().await;
        let mut bytes = 0;
        let end = loop {
            match reader.receive(next, &mut requests).await {
                Ok(frame_bytes) => bytes += frame_bytes,
                Err(end) => break Some(end),
            }
            let full =
                requests.len() >= connection.app.edge.settings.slice_frames_max || bytes >= SLICE_BYTES;
            if full || connection.unanswered.is_full() {
                break None;
            }
            match stream.next().now_or_never() {
                Some(arrived) => next = arrived,
                None => break None,
            }
        };
        connection.keepalive.listen(false);
        // Also at the end: requests that were sent before a closing frame count.
        if connection.bus.send(&reader.gate.caller.by(), &mut requests).await.is_err() {
            return connection.app.stopping_end();
        }
        if let Some(end) = end {
            return end;
        }
    }
}

struct FrameReader<'a> {
    connection: &'a Connection<'a>,
    topics: TopicKeys,
    gate: Gate<'a>,
    answers: mpsc::Sender<String>,
}

impl FrameReader<'_> {
    /// Returns how many bytes the frame had.
    async fn receive(
        &mut self,
        arrived: Option<Result<Message, SocketError>>,
        requests: &mut Vec<(u64, Request)>,
    ) -> Result<usize, WsEnd> {
        let bytes_max = self.connection.app.edge.settings.frame_bytes_max;
        let message = match arrived {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(WsEnd::of(&error, bytes_max)),
            None => return Err(WsEnd::Gone),
        };
        self.connection.keepalive.beat();
        let bytes = self.connection.frames.read(&message);
        let taken = match message {
            Message::Text(text) => self.frame(&text),
            Message::Binary(_) => self.bad_frame(&FrameError::binary()),
            // The library does not give raw frames to readers.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => FrameOutcome::Nothing,
            Message::Close(_) => return Err(WsEnd::Goodbye),
        };
        match taken {
            FrameOutcome::Request(number, request) => requests.push((number, request)),
            // The writer is gone only when the connection ends anyway.
            FrameOutcome::Answer(text) => self.answers.send(text).await.map_err(|_| WsEnd::Gone)?,
            FrameOutcome::Nothing => {}
        }
        Ok(bytes)
    }

    fn frame(&mut self, text: &str) -> FrameOutcome {
        let ClientFrame { rid, request } = match ClientFrame::parse(text) {
            Ok(frame) => frame,
            Err(error) => return self.bad_frame(&error),
        };
        if let Err(error) = self.gate.pass(&request) {
            return refused(&error.rid(rid));
        }
        let mut own = String::new();
        match &request {
            ClientRequest::Ping => write_pong(&mut own, rid.as_ref()),
            ClientRequest::Auth(_) => write_ok(&mut own, request.type_name(), rid.as_ref()),
            _ => {}
        }
        let answered = match &request {
            ClientRequest::Ack(_) | ClientRequest::Nack(_) | ClientRequest::Flow(_) => rid.is_some(),
            _ => true,
        };
        let (op, trace) = (request.type_name(), trace(&request));
        let (topic, group) = (topic(&request).cloned(), group(&request).cloned());
        let batch_max = batch_max(&request);
        let Some(request) = from_wire::request(&mut self.topics, request, answered) else {
            return FrameOutcome::Answer(own);
        };
        let tracer = self.connection.app.edge.settings.tracer.as_ref();
        let traced = TracedPublish::of(tracer, &request);
        let arrived = Instant::now();
        let unanswered = UnansweredRequest { arrived, rid, op, traced, trace, topic, group, batch_max };
        let number = if answered { self.connection.unanswered.add(unanswered) } else { NO_ANSWER };
        FrameOutcome::Request(number, request)
    }

    fn bad_frame(&self, error: &FrameError) -> FrameOutcome {
        self.connection.refused(error.code, "a frame", &error.message, None, None);
        refused(error)
    }
}

fn batch_max(request: &ClientRequest) -> u32 {
    match request {
        ClientRequest::Subscribe(subscribe) => subscribe.batch_max.unwrap_or(1),
        _ => 1,
    }
}

fn refused(error: &FrameError) -> FrameOutcome {
    let mut text = String::new();
    error.write(&mut text);
    FrameOutcome::Answer(text)
}
