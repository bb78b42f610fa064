//! NATS JetStream: file storage, one replica, a pull consumer that acknowledges cumulatively.

use std::collections::VecDeque;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};

use crate::error::PeerError;
use crate::load_target::{Consumer, LoadTarget, Topic};
use crate::loads::{ANSWERS_PER_TURN, PATIENCE};

/// More than any load leaves unacknowledged.
const UNACKED_MAX: i64 = 20_000;
/// Events requested ahead of their use.
const PREFETCH: usize = 1000;

#[derive(Clone)]
pub(crate) struct Nats(Context);

pub(crate) struct NatsConsumer(pull::Stream);

impl LoadTarget for Nats {
    type Consumer = NatsConsumer;

    async fn connect(url: &str) -> Result<Nats, PeerError> {
        let client = async_nats::connect(url).await.map_err(PeerError::client("connecting to NATS"))?;
        Ok(Nats(jetstream::new(client)))
    }

    async fn create_topic(&self, topic: Topic<'_>) -> Result<(), PeerError> {
        let config = Config {
            name: topic.name.to_owned(),
            subjects: vec![topic.name.to_owned()],
            storage: StorageType::File,
            ..Config::default()
        };
        self.0.create_stream(config).await.map(|_| ()).map_err(PeerError::client("creating a stream"))
    }

    async fn publish(&self, topic: &str, payload: Bytes) -> Result<(), PeerError> {
        let doing = "publishing to NATS";
        let ack = self.0.publish(topic.to_owned(), payload).await.map_err(PeerError::client(doing))?;
        ack.await.map(|_| ()).map_err(PeerError::client(doing))
    }

    async fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        mut more: impl FnMut(u64) -> bool + Send,
    ) -> Result<u64, PeerError> {
        let doing = "publishing to NATS";
        let (mut sent, mut waiting) = (0, VecDeque::with_capacity(in_flight));
        while more(sent) {
            let ack =
                self.0.publish(topic.to_owned(), payload.clone()).await.map_err(PeerError::client(doing))?;
            waiting.push_back(ack.into_future());
            sent += 1;
            if waiting.len() >= in_flight {
                for ack in waiting.drain(..ANSWERS_PER_TURN.min(in_flight)) {
                    ack.await.map_err(PeerError::client(doing))?;
                }
            }
        }
        for ack in waiting {
            ack.await.map_err(PeerError::client(doing))?;
        }
        Ok(sent)
    }

    async fn subscribe(&self, topic: &str, group: &str) -> Result<NatsConsumer, PeerError> {
        let doing = "creating a consumer";
        let config = pull::Config {
            durable_name: Some(group.to_owned()),
            ack_policy: AckPolicy::All,
            deliver_policy: DeliverPolicy::All,
            max_ack_pending: UNACKED_MAX,
            ..pull::Config::default()
        };
        let stream = self.0.get_stream(topic).await.map_err(PeerError::client(doing))?;
        let consumer = stream.create_consumer(config).await.map_err(PeerError::client(doing))?;
        let messages = consumer.stream().max_messages_per_batch(PREFETCH).messages().await;
        Ok(NatsConsumer(messages.map_err(PeerError::client(doing))?))
    }
}

impl Consumer for NatsConsumer {
    async fn receive(&mut self, max: usize, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<u64, PeerError> {
        let doing = "consuming from NATS";
        let Ok(first) = tokio::time::timeout(PATIENCE, self.0.next()).await else { return Ok(0) };
        let (mut next, mut last, mut taken) = (first, None, 0);
        while let Some(message) = next {
            let message = message.map_err(PeerError::client(doing))?;
            each(&message.payload);
            last = Some(message);
            taken += 1;
            if taken as usize == max {
                break;
            }
            next = self.0.next().now_or_never().flatten();
        }
        if let Some(last) = last {
            last.ack().await.map_err(PeerError::client(doing))?;
        }
        Ok(taken)
    }
}
