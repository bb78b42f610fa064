//! The client's handle: it puts commands for the background task into the mailbox.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_model::{EventId, Timestamp, TopicName};
use millrace_wire::{Publish, PublishBatch, Published, PublishedBatch};
use tokio::sync::{oneshot, watch};

use crate::command::ClientCommand;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::mailbox::Mailbox;
use crate::message::NewMessage;
use crate::message_queue::MessageQueue;
use crate::options::{ClientOptions, SubscribeOptions};
use crate::receipt::{BatchReceipt, Receipt};
use crate::request_queue::RequestQueue;
use crate::subscription::Subscription;
use crate::task;

/// A connection to a server. Cheap to clone; all clones share one connection. When the last clone and the last
/// subscription are dropped, the connection is closed.
#[derive(Clone, Debug)]
pub struct Client {
    requests: Requests,
    attach_ids: bool,
    connected_to: watch::Receiver<Option<Endpoint>>,
}

/// The way to the background task. When the last clone is dropped, no request will come any more.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Arc<LastHandle>);

#[derive(Debug)]
struct LastHandle(Arc<Mailbox>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.desert();
    }
}

impl Requests {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Requests {
        Requests(Arc::new(LastHandle(mailbox)))
    }

    fn mailbox(&self) -> &Arc<Mailbox> {
        &self.0.0
    }

    pub(crate) async fn send(&self, command: ClientCommand) -> Result<(), ClientError> {
        self.mailbox().send(command).await
    }

    /// Sends without waiting, for `drop`; the command is lost if the queue is full.
    pub(crate) fn try_send(&self, command: ClientCommand) {
        self.mailbox().try_send(command);
    }

    pub(crate) async fn answer<T>(
        &self,
        answer: oneshot::Receiver<Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        answer.await.unwrap_or_else(|_| Err(self.mailbox().end_reason()))
    }
}

impl Client {
    /// Resolves once a server has accepted the connection; each one of the list is tried once. A failure here is final:
    /// the client reconnects only after a connection was established. If that server says that another one leads, the
    /// client goes there by itself.
    pub async fn connect(options: ClientOptions) -> Result<Client, ClientError> {
        let mailbox = Mailbox::new(&options);
        let (server, connected_to) = watch::channel(None);
        let requests = Requests::new(mailbox.clone());
        let client = Client { requests, attach_ids: options.resend, connected_to };
        task::start(options, RequestQueue::new(mailbox), server).await?;
        Ok(client)
    }

    /// Returns the URL of the server that this client is connected to; `None` while it is not connected. Right after
    /// connecting, that server may still answer that another one leads.
    pub fn url(&self) -> Option<String> {
        self.connected_to.borrow().as_ref().map(Endpoint::to_string)
    }

    /// Resolves when the event is as durable as the answer says.
    pub async fn publish(&self, topic: &str, message: NewMessage) -> Result<Published, ClientError> {
        self.publish_nowait(topic, message).await?.await
    }

    /// Resolves when the publish is queued, which waits only for room; the receipt resolves when it is confirmed.
    pub async fn publish_nowait(&self, topic: &str, message: NewMessage) -> Result<Receipt, ClientError> {
        let topic = TopicName::new(topic)?;
        let deliver_at = message.deliver_at;
        let event = message.into_event(self.new_id());
        let bytes = event.body.bytes();
        let publish = Publish { topic, event, deliver_at };
        let request = |unconfirmed| ClientCommand::Publish { publish, unconfirmed };
        Ok(Receipt(self.requests.mailbox().publish(bytes, request).await?))
    }

    /// Publishes events together: all of them are stored or none. `deliver_at` has no meaning in a batch and is not
    /// sent.
    pub async fn publish_batch(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<PublishedBatch, ClientError> {
        self.publish_batch_nowait(topic, messages).await?.await
    }

    pub async fn publish_batch_nowait(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<BatchReceipt, ClientError> {
        let topic = TopicName::new(topic)?;
        let events: Vec<_> = messages.into_iter().map(|message| message.into_event(self.new_id())).collect();
        let bytes = events.iter().map(|event| event.body.bytes()).sum();
        let batch = PublishBatch { topic, events };
        let request = |unconfirmed| ClientCommand::PublishBatch { batch, unconfirmed };
        Ok(BatchReceipt(self.requests.mailbox().publish(bytes, request).await?))
    }

    /// Resolves when the server has confirmed the subscription.
    pub async fn subscribe(&self, options: SubscribeOptions) -> Result<Subscription, ClientError> {
        let queue = Arc::new(MessageQueue::new(options.max_inflight));
        let (reply, answer) = oneshot::channel();
        let subscribe = options.request();
        // Created before the answer arrives, so that a caller who stops waiting drops it, which unsubscribes.
        let mut subscription = Subscription::new(options, queue.clone(), self.requests.clone());
        self.requests.send(ClientCommand::Subscribe { subscribe, queue, reply }).await?;
        match self.requests.answer(answer).await {
            Ok(positions) => {
                subscription.start = positions;
                Ok(subscription)
            }
            Err(error) => {
                subscription.forget();
                Err(error)
            }
        }
    }

    /// Lets the server deliver this many more events on the whole connection. The first call switches the connection to
    /// credits; without any, only the windows of the subscriptions count. When a connection is lost, deliveries that
    /// were not taken give their credits back.
    pub async fn flow(&self, credits: u64) -> Result<(), ClientError> {
        self.requests.send(ClientCommand::Flow { credits }).await
    }

    /// Resolves when the server has answered.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(ClientCommand::Ping { reply }).await?;
        self.requests.answer(answer).await
    }

    /// Writes all earlier requests, then ends the connection. Publishes that are not confirmed by then fail with
    /// [`ClientError::Closed`]: await their receipts first.
    pub async fn close(&self) {
        let (done, ended) = oneshot::channel();
        if self.requests.send(ClientCommand::Close { done }).await.is_ok() {
            drop(ended.await);
        }
    }

    fn new_id(&self) -> Option<EventId> {
        let since_epoch =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        self.attach_ids.then(|| EventId::mint(Timestamp(since_epoch()), rand::random(), 0))
    }
}
