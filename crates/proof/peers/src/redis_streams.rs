//! Redis Streams: XADD, and XREADGROUP with XACK.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use redis::{AsyncConnectionConfig, Cmd, Value};

use crate::error::PeerError;
use crate::load_target::{Consumer, LoadTarget, Topic};
use crate::loads::PATIENCE;

const FIELD: &str = "p";
/// Publishes in flight are split into this many pipelines, so that one is on its way while another is processed.
const PIPELINES: usize = 2;

#[derive(Clone)]
pub(crate) struct Redis(MultiplexedConnection, String);

pub(crate) struct RedisConsumer {
    connection: MultiplexedConnection,
    topic: String,
    group: String,
}

/// Opens a connection of its own for each consumer, because consumers block on it.
async fn open(url: &str) -> Result<MultiplexedConnection, PeerError> {
    let doing = "connecting to Redis";
    let client = redis::Client::open(url).map_err(PeerError::client(doing))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE * 2));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.map_err(PeerError::client(doing))
}

fn xadd(topic: &str, payload: &[u8]) -> Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(topic).arg("*").arg(FIELD).arg(payload);
    command
}

impl LoadTarget for Redis {
    type Consumer = RedisConsumer;

    async fn connect(url: &str) -> Result<Redis, PeerError> {
        Ok(Redis(open(url).await?, url.to_owned()))
    }

    /// A stream is made by its first event.
    async fn create_topic(&self, _: Topic<'_>) -> Result<(), PeerError> {
        Ok(())
    }

    async fn publish(&self, topic: &str, payload: Bytes) -> Result<(), PeerError> {
        let mut connection = self.0.clone();
        let answer = xadd(topic, &payload).query_async::<()>(&mut connection).await;
        answer.map_err(PeerError::client("publishing to Redis"))
    }

    async fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        mut more: impl FnMut(u64) -> bool + Send,
    ) -> Result<u64, PeerError> {
        let mut pipeline = redis::pipe();
        let each = (in_flight / PIPELINES).max(1);
        for _ in 0..each {
            pipeline.add_command(xadd(topic, &payload)).ignore();
        }
        let (mut sent, mut waiting) = (0, FuturesUnordered::new());
        loop {
            while waiting.len() < PIPELINES && more(sent) {
                let (mut connection, pipeline) = (self.0.clone(), &pipeline);
                waiting.push(async move { pipeline.query_async::<()>(&mut connection).await });
                sent += each as u64;
            }
            match waiting.next().await {
                Some(answer) => answer.map_err(PeerError::client("publishing to Redis"))?,
                None => return Ok(sent),
            }
        }
    }

    async fn subscribe(&self, topic: &str, group: &str) -> Result<RedisConsumer, PeerError> {
        let mut connection = open(&self.1).await?;
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(topic).arg(group).arg("0").arg("MKSTREAM");
        let answer = create.query_async::<()>(&mut connection).await;
        answer.map_err(PeerError::client("creating a group"))?;
        Ok(RedisConsumer { connection, topic: topic.to_owned(), group: group.to_owned() })
    }
}

impl Consumer for RedisConsumer {
    async fn receive(&mut self, max: usize, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<u64, PeerError> {
        let doing = "consuming from Redis";
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg("one").arg("COUNT").arg(max);
        read.arg("BLOCK").arg(PATIENCE.as_millis() as u64).arg("STREAMS").arg(&self.topic).arg(">");
        let answer = read.query_async::<Option<StreamReadReply>>(&mut self.connection).await;
        let Some(reply) = answer.map_err(PeerError::client(doing))? else { return Ok(0) };
        let mut ids = Vec::with_capacity(max);
        for entry in reply.keys.into_iter().flat_map(|key| key.ids) {
            if let Some(Value::BulkString(payload)) = entry.map.get(FIELD) {
                each(payload);
            }
            ids.push(entry.id);
        }
        if !ids.is_empty() {
            let mut ack = redis::cmd("XACK");
            ack.arg(&self.topic).arg(&self.group).arg(&ids);
            ack.query_async::<()>(&mut self.connection).await.map_err(PeerError::client(doing))?;
        }
        Ok(ids.len() as u64)
    }
}
