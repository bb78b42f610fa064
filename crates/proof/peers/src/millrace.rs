//! Millrace, through its Rust client over the WebSocket.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_client::{
    Client, ClientOptions, JsonText, NewMessage, StartFrom, SubscribeOptions, Subscription,
};

use crate::error::PeerError;
use crate::load_target::{Consumer, LoadTarget, Topic};
use crate::loads::{ANSWERS_PER_TURN, PATIENCE};

/// Below the largest window that the server allows by default.
const WINDOW: u32 = 1000;
/// Events in a frame at most, as many as one acknowledgement completes.
const BATCH: u32 = 100;

#[derive(Clone)]
pub(crate) struct Millrace(Client);

pub(crate) struct MillraceConsumer {
    subscription: Subscription,
    /// Keeps the connection open, which ends with the last handle.
    _client: Client,
}

/// The payload is a JSON string of the same length, quotes included.
fn message(payload: &Bytes) -> Result<NewMessage, PeerError> {
    let text = String::from_utf8(payload.to_vec()).map_err(PeerError::client("making a payload"))?;
    let text = JsonText::parse(&text).map_err(PeerError::client("making a payload"))?;
    Ok(NewMessage::new(text))
}

impl LoadTarget for Millrace {
    type Consumer = MillraceConsumer;

    /// Without ids for a safe resend: the peers' publishes have none either.
    async fn connect(url: &str) -> Result<Millrace, PeerError> {
        let options = ClientOptions { reconnect: false, resend: false, ..ClientOptions::new(url) };
        Ok(Millrace(Client::connect(options).await.map_err(PeerError::client("connecting to Millrace"))?))
    }

    /// A topic is made by its first event.
    async fn create_topic(&self, _: Topic<'_>) -> Result<(), PeerError> {
        Ok(())
    }

    async fn publish(&self, topic: &str, payload: Bytes) -> Result<(), PeerError> {
        let answer = self.0.publish(topic, message(&payload)?).await;
        answer.map(|_| ()).map_err(PeerError::client("publishing to Millrace"))
    }

    async fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        mut more: impl FnMut(u64) -> bool + Send,
    ) -> Result<u64, PeerError> {
        let doing = "publishing to Millrace";
        let message = message(&payload)?;
        let (mut sent, mut waiting) = (0, VecDeque::with_capacity(in_flight));
        while more(sent) {
            let receipt = self.0.publish_nowait(topic, message.clone()).await;
            waiting.push_back(receipt.map_err(PeerError::client(doing))?);
            sent += 1;
            if waiting.len() >= in_flight {
                for receipt in waiting.drain(..ANSWERS_PER_TURN.min(in_flight)) {
                    receipt.await.map_err(PeerError::client(doing))?;
                }
            }
        }
        for receipt in waiting {
            receipt.await.map_err(PeerError::client(doing))?;
        }
        Ok(sent)
    }

    async fn subscribe(&self, topic: &str, group: &str) -> Result<MillraceConsumer, PeerError> {
        let doing = "subscribing";
        let options = SubscribeOptions::new(topic, group).map_err(PeerError::client(doing))?;
        let options = SubscribeOptions {
            max_inflight: WINDOW,
            batch_max: Some(BATCH),
            ..options.from(StartFrom::Earliest)
        };
        let subscription = self.0.subscribe(options).await.map_err(PeerError::client(doing))?;
        Ok(MillraceConsumer { subscription, _client: self.0.clone() })
    }
}

impl Consumer for MillraceConsumer {
    async fn receive(&mut self, max: usize, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<u64, PeerError> {
        let doing = "consuming from Millrace";
        let Ok(first) = tokio::time::timeout(PATIENCE, self.subscription.next()).await else { return Ok(0) };
        let mut last = first.map_err(PeerError::client(doing))?;
        let mut taken = 1;
        each(last.payload().as_str().as_bytes());
        while (taken as usize) < max {
            let Some(next) = self.subscription.try_next().map_err(PeerError::client(doing))? else { break };
            each(next.payload().as_str().as_bytes());
            last = next;
            taken += 1;
        }
        last.ack().await.map_err(PeerError::client(doing))?;
        Ok(taken)
    }
}
