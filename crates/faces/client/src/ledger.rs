//! The state of a client over its connections: pending requests, subscriptions, frames to write. Does no I/O: it is
//! told the commands, the received frames, and when a connection begins or ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_wire::{
    ClientFrame, ClientRequest, ErrorCode, Flow, FrameError, Message, Rid, ServerFrame, Unsubscribe,
};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::command::{ClientCommand, Reply};
use crate::error::ClientError;
use crate::mailbox::{Mailbox, Settled};
use crate::pending::PendingReply;
use crate::subscriptions::{Key, Subscriptions};

#[derive(Debug)]
pub(crate) struct Ledger {
    resend: bool,
    frame_bytes_max: usize,
    connected: bool,
    /// The server has reported that a frame was too large; it then closes the connection.
    oversize: bool,
    /// The number of this connection, counted from 1.
    epoch: u64,
    last_rid: u64,
    /// Deliveries the server may still make; `None` before the first FLOW.
    credits: Option<u64>,
    /// Requests by their id (`rid`), so in the order in which they were made, which is the order of sending again.
    pending: BTreeMap<u64, PendingReply>,
    /// SUBSCRIBE requests under way on this connection, by request id.
    subscribing: BTreeMap<u64, Key>,
    /// Confirmed subscriptions that the server refused on this connection for a passing reason.
    kept_out: BTreeSet<Key>,
    subscriptions: Subscriptions,
    outgoing: VecDeque<Utf8Bytes>,
    mailbox: Arc<Mailbox>,
    /// Answers to publishes that were not handed over yet.
    settled: Vec<Settled>,
}

impl Ledger {
    pub(crate) fn new(resend: bool, frame_bytes_max: usize, mailbox: Arc<Mailbox>) -> Ledger {
        Ledger {
            resend,
            frame_bytes_max,
            connected: false,
            oversize: false,
            epoch: 0,
            last_rid: 0,
            credits: None,
            pending: BTreeMap::new(),
            subscribing: BTreeMap::new(),
            kept_out: BTreeSet::new(),
            subscriptions: Subscriptions::default(),
            outgoing: VecDeque::new(),
            mailbox,
            settled: Vec::new(),
        }
    }

    pub(crate) fn outgoing(&mut self) -> &mut VecDeque<Utf8Bytes> {
        &mut self.outgoing
    }

    /// Called with a new connection: subscribes again, then sends unconfirmed publishes again.
    pub(crate) fn connected(&mut self) {
        self.connected = true;
        self.epoch += 1;
        // Sent before any SUBSCRIBE, so that nothing is delivered without a credit.
        if let Some(credits) = self.credits {
            self.plain(ClientRequest::Flow(Flow { credits }), None);
        }
        for key in self.subscriptions.keys() {
            self.subscribe(key);
        }
        self.outgoing.extend(self.pending.values().filter_map(PendingReply::publish_frame).cloned());
    }

    pub(crate) fn lost(&mut self, reason: &str) {
        // Deliveries that arrived last are in their queues before these are emptied and counted.
        self.hand_over();
        self.connected = false;
        self.outgoing.clear();
        self.subscribing.clear();
        self.kept_out.clear();
        let untaken = self.subscriptions.lost() as u64;
        self.credits = self.credits.map(|credits| credits.saturating_add(untaken));
        if std::mem::take(&mut self.oversize) {
            self.fail_largest();
        }
        for (rid, pending) in std::mem::take(&mut self.pending) {
            if self.resend && pending.publish_frame().is_some() {
                self.pending.insert(rid, pending);
            } else {
                pending.fail(ClientError::Disconnected(reason.into()), &mut self.settled);
            }
        }
        self.hand_over();
    }

    /// Hands over what received frames brought: confirmations to those who published, deliveries to subscriptions. To be
    /// called after a number of frames that arrived together; the other methods do it themselves.
    pub(crate) fn hand_over(&mut self) {
        let abandoned = self.subscriptions.hand_over(self.epoch);
        self.leave(abandoned);
        self.mailbox.settle(&mut self.settled);
    }

    pub(crate) fn oversize(&mut self) {
        self.oversize = true;
    }

    /// Fails the largest publish. The server cannot say which frame was too large, because it refused to read it, but
    /// it must have been the largest. Sent again, that frame would end the next connection, too.
    fn fail_largest(&mut self) {
        let length = |pending: &PendingReply| pending.publish_frame().map_or(0, |frame| frame.len());
        let largest = self.pending.iter().max_by_key(|(_, pending)| length(pending)).map(|(rid, _)| *rid);
        if let Some(pending) = largest.and_then(|rid| self.pending.remove(&rid)) {
            let bytes = length(&pending);
            let error = ClientError::TooLarge { bytes, max: "fewer than the server's limit".into() };
            pending.fail(error, &mut self.settled);
        }
    }

    /// Fails everything that waits, because the client has ended.
    pub(crate) fn fail_all(&mut self, error: &ClientError) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            pending.fail(error.clone(), &mut self.settled);
        }
        self.subscriptions.fail_all(error);
        self.hand_over();
    }

    /// Handles a command. The task itself handles `Close`.
    pub(crate) fn command(&mut self, command: ClientCommand) {
        match command {
            ClientCommand::Publish { publish, unconfirmed } => {
                let (rid, frame) = self.frame(ClientRequest::Publish(publish));
                self.publish(rid, frame.clone(), PendingReply::Publish { frame, unconfirmed });
            }
            ClientCommand::PublishBatch { batch, unconfirmed } => {
                let (rid, frame) = self.frame(ClientRequest::PublishBatch(batch));
                self.publish(rid, frame.clone(), PendingReply::PublishBatch { frame, unconfirmed });
            }
            ClientCommand::Subscribe { subscribe, queue, reply } => {
                if let Some(key) = self.subscriptions.add(subscribe, queue, reply) {
                    self.subscribe(key);
                }
            }
            ClientCommand::Unsubscribe { unsubscribe, reply } => self.unsubscribe(unsubscribe, reply),
            ClientCommand::Ack { ack, epoch, reply } => {
                self.about_delivery(ClientRequest::Ack(ack), epoch, reply);
            }
            ClientCommand::Nack { nack, epoch, reply } => {
                self.about_delivery(ClientRequest::Nack(nack), epoch, reply);
            }
            ClientCommand::Flow { credits } => {
                self.credits = Some(self.credits.unwrap_or(0).saturating_add(credits));
                self.plain(ClientRequest::Flow(Flow { credits }), None);
            }
            ClientCommand::Ping { reply } => self.plain(ClientRequest::Ping, Some(reply)),
            ClientCommand::Close { done } => drop(done.send(())),
        }
    }

    /// Takes a frame of the server. [`Ledger::hand_over`] hands over what the frame brings.
    pub(crate) fn answer(&mut self, frame: ServerFrame) {
        let rid = match &frame {
            ServerFrame::Message(_) | ServerFrame::Messages(_) => None,
            ServerFrame::Published(published) => published.rid.as_ref(),
            ServerFrame::PublishedBatch(published) => published.rid.as_ref(),
            ServerFrame::Ok(ok) => ok.rid.as_ref(),
            ServerFrame::Pong(rid) => rid.as_ref(),
            ServerFrame::Error(error) => error.rid.as_ref(),
        };
        match (rid.and_then(Rid::as_number), frame) {
            (Some(rid), answer) => self.settle(rid, answer),
            (None, ServerFrame::Message(message)) => self.deliver(message),
            (None, ServerFrame::Messages(messages)) => {
                for message in messages.into_each() {
                    self.deliver(Box::new(message));
                }
            }
            // The connection ends with this error, which is reported there.
            (None, ServerFrame::Error(error)) if error.code == ErrorCode::Moved => {}
            (None, ServerFrame::Error(error)) => {
                tracing::warn!(code = %error.code, message = error.message, "the server reports an error");
                self.oversize |= error.code == ErrorCode::TooLarge;
                self.subscriptions.notice(&error);
            }
            (None, _) => {}
        }
    }

    /// Sends a PING, so that a living server answers.
    pub(crate) fn beat(&mut self) {
        self.plain(ClientRequest::Ping, None);
    }

    fn deliver(&mut self, message: Box<Message>) {
        self.credits = self.credits.map(|credits| credits.saturating_sub(1));
        let abandoned = self.subscriptions.deliver(message, self.epoch);
        self.leave(abandoned);
    }

    /// Ends a subscription that was dropped, if there is one.
    fn leave(&mut self, abandoned: Option<Key>) {
        if let Some((topic, group)) = abandoned {
            self.unsubscribe(Unsubscribe { topic, group }, None);
        }
    }

    fn settle(&mut self, rid: u64, answer: ServerFrame) {
        // A server that is shutting down or does not lead counts as gone: the request is sent again on the next
        // connection.
        let stopping = matches!(
            &answer,
            ServerFrame::Error(error) if matches!(error.code, ErrorCode::ShuttingDown | ErrorCode::Moved)
        );
        if let Some(key) = self.subscribing.remove(&rid) {
            match answer {
                ServerFrame::Ok(ok) => self.subscriptions.subscribed(&key, ok),
                ServerFrame::Error(error) if !stopping => self.subscription_refused(key, error),
                _ => {}
            }
            return;
        }
        let Some(pending) = self.pending.remove(&rid) else { return };
        if stopping && self.resend && pending.publish_frame().is_some() {
            self.pending.insert(rid, pending);
        } else {
            pending.settle(answer, &mut self.settled);
        }
    }

    /// Handles the refusal of a subscription. If the server had confirmed it before and the reason may pass, the
    /// subscription does not end: it is requested again at the next tick. A caller who subscribes for the first time
    /// gets the error. A limit may be reached only because the server has not noticed yet that our last connection is
    /// gone.
    fn subscription_refused(&mut self, key: Key, error: FrameError) {
        let passing =
            matches!(error.code, ErrorCode::RateLimited | ErrorCode::StorageFailed | ErrorCode::LimitReached);
        if passing && self.subscriptions.is_confirmed(&key) {
            tracing::warn!(code = %error.code, topic = %key.0, "not subscribed again yet: {}", error.message);
            self.kept_out.insert(key);
        } else {
            self.subscriptions.refused(&key, error);
        }
    }

    /// Requests refused subscriptions again. To be called at intervals.
    pub(crate) fn subscribe_again(&mut self) {
        for key in std::mem::take(&mut self.kept_out) {
            self.subscribe(key);
        }
    }

    fn publish(&mut self, rid: u64, frame: Utf8Bytes, pending: PendingReply) {
        if frame.len() > self.frame_bytes_max {
            let max = format!("at most {}", self.frame_bytes_max);
            pending.fail(ClientError::TooLarge { bytes: frame.len(), max }, &mut self.settled);
            return self.hand_over();
        }
        self.send(frame);
        self.pending.insert(rid, pending);
    }

    fn subscribe(&mut self, key: Key) {
        let Some(subscribe) = self.subscriptions.request(&key).filter(|_| self.connected) else { return };
        let (rid, frame) = self.frame(ClientRequest::Subscribe(subscribe));
        self.send(frame);
        self.subscribing.insert(rid, key);
    }

    /// Ends a subscription. Without a connection it is enough not to subscribe again.
    fn unsubscribe(&mut self, unsubscribe: Unsubscribe, reply: Option<Reply<()>>) {
        let key = (unsubscribe.topic.clone(), unsubscribe.group.clone());
        self.kept_out.remove(&key);
        self.subscriptions.remove(&key);
        match reply {
            Some(reply) if !self.connected => drop(reply.send(Ok(()))),
            reply => self.plain(ClientRequest::Unsubscribe(unsubscribe), reply),
        }
    }

    fn about_delivery(&mut self, request: ClientRequest, epoch: u64, reply: Option<Reply<()>>) {
        if self.connected && epoch == self.epoch {
            return self.plain(request, reply);
        }
        if let Some(reply) = reply {
            drop(reply.send(Err(ClientError::Stale)));
        }
    }

    /// Sends a request that is answered by OK or PONG. Without `reply` the frame has no request id, and the server
    /// answers it only to refuse it.
    fn plain(&mut self, request: ClientRequest, reply: Option<Reply<()>>) {
        match reply {
            None => self.send(written(&ClientFrame { rid: None, request })),
            Some(reply) if self.connected => {
                let (rid, frame) = self.frame(request);
                self.send(frame);
                self.pending.insert(rid, PendingReply::Plain { reply });
            }
            Some(reply) => drop(reply.send(Err(ClientError::Disconnected("not connected just now".into())))),
        }
    }

    fn frame(&mut self, request: ClientRequest) -> (u64, Utf8Bytes) {
        self.last_rid += 1;
        let rid = Some(Rid::number(self.last_rid));
        (self.last_rid, written(&ClientFrame { rid, request }))
    }

    /// Queues a frame. Without a connection it is dropped: everything that outlives a connection is in `pending` and
    /// `subscriptions`.
    fn send(&mut self, frame: Utf8Bytes) {
        if self.connected {
            self.outgoing.push_back(frame);
        }
    }
}

fn written(frame: &ClientFrame) -> Utf8Bytes {
    const REST_BYTES: usize = 192;
    let content = match &frame.request {
        ClientRequest::Publish(publish) => publish.event.body.bytes(),
        _ => 0,
    };
    let mut out = String::with_capacity(content + REST_BYTES);
    frame.write(&mut out);
    out.into()
}
