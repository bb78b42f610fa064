//! PostgreSQL as a queue: a table per topic with a row per event and group, taken with `FOR UPDATE SKIP LOCKED` and
//! deleted in the same transaction, whose commit is the acknowledgement. Consumers that wait are woken by `NOTIFY`.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, Notify};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, Statement};

use crate::error::PeerError;
use crate::load_target::{Consumer, LoadTarget, Topic};
use crate::loads::PATIENCE;

/// Publishes in flight are split into this many statements. A connection carries out one after the other, so the next is
/// there when the last one ends.
const STATEMENTS: usize = 2;

#[derive(Clone)]
pub(crate) struct Postgres(Arc<Connection>);

struct Connection {
    client: Client,
    url: String,
    /// By their text.
    prepared: Mutex<HashMap<String, Statement>>,
}

pub(crate) struct PostgresConsumer {
    client: Client,
    take: Statement,
    group: String,
    woken: Arc<Notify>,
}

/// Connects, and drives the connection in a task of its own. Returns what a NOTIFY notifies.
async fn open(url: &str) -> Result<(Client, Arc<Notify>), PeerError> {
    let opened = tokio_postgres::connect(url, NoTls).await;
    let (client, mut connection) = opened.map_err(PeerError::client("connecting to PostgreSQL"))?;
    let woken = Arc::new(Notify::new());
    let wake = woken.clone();
    tokio::spawn(async move {
        // The end of the connection fails the client's requests, which tell it.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                wake.notify_one();
            }
        }
    });
    Ok((client, woken))
}

impl Connection {
    async fn statement(&self, text: String) -> Result<Statement, PeerError> {
        let mut prepared = self.prepared.lock().await;
        if let Some(statement) = prepared.get(&text) {
            return Ok(statement.clone());
        }
        let made = self.client.prepare(&text).await;
        let made = made.map_err(PeerError::client("preparing a statement of PostgreSQL"))?;
        prepared.insert(text, made.clone());
        Ok(made)
    }
}

impl LoadTarget for Postgres {
    type Consumer = PostgresConsumer;

    async fn connect(url: &str) -> Result<Postgres, PeerError> {
        let (client, _) = open(url).await?;
        Ok(Postgres(Arc::new(Connection { client, url: url.to_owned(), prepared: Mutex::default() })))
    }

    /// Only a topic with consumers that wait has a trigger: at a commit with a NOTIFY, PostgreSQL holds a lock over the
    /// whole database until the sync is done.
    async fn create_topic(&self, topic: Topic<'_>) -> Result<(), PeerError> {
        let name = topic.name;
        let mut script = format!(
            "CREATE TABLE {name} (grp text, id bigint GENERATED ALWAYS AS IDENTITY, payload bytea NOT NULL, \
             PRIMARY KEY (grp, id)); \
             CREATE TABLE {name}_groups (grp text PRIMARY KEY);"
        );
        for group in topic.groups {
            script += &format!("INSERT INTO {name}_groups VALUES ('{group}');");
        }
        if topic.has_waiting_consumers {
            script += &format!(
                "CREATE FUNCTION {name}_wake() RETURNS trigger LANGUAGE plpgsql \
                 AS $$BEGIN NOTIFY {name}; RETURN NULL; END$$; \
                 CREATE TRIGGER wake AFTER INSERT ON {name} FOR EACH STATEMENT EXECUTE FUNCTION {name}_wake();"
            );
        }
        let made = self.0.client.batch_execute(&script).await;
        made.map_err(PeerError::client("creating a table"))
    }

    async fn publish(&self, topic: &str, payload: Bytes) -> Result<(), PeerError> {
        let text = format!("INSERT INTO {topic} (grp, payload) SELECT grp, $1::bytea FROM {topic}_groups");
        let insert = self.0.statement(text).await?;
        let stored = self.0.client.execute(&insert, &[&payload.as_ref()]).await;
        stored.map(|_| ()).map_err(PeerError::client("publishing to PostgreSQL"))
    }

    /// Many rows in one statement, as users do it: one connection commits, and so syncs, one statement after the other.
    async fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        mut more: impl FnMut(u64) -> bool + Send,
    ) -> Result<u64, PeerError> {
        let text = format!(
            "INSERT INTO {topic} (grp, payload) SELECT grp, one FROM {topic}_groups, unnest($1::bytea[]) AS one"
        );
        let insert = self.0.statement(text).await?;
        let rows = vec![payload.as_ref(); (in_flight / STATEMENTS).max(1)];
        let (mut sent, mut waiting) = (0, FuturesUnordered::new());
        loop {
            while waiting.len() < STATEMENTS && more(sent) {
                let (client, insert, rows) = (&self.0.client, &insert, &rows);
                waiting.push(async move { client.execute(insert, &[rows]).await });
                sent += rows.len() as u64;
            }
            match waiting.next().await {
                Some(stored) => drop(stored.map_err(PeerError::client("publishing to PostgreSQL"))?),
                None => return Ok(sent),
            }
        }
    }

    async fn subscribe(&self, topic: &str, group: &str) -> Result<PostgresConsumer, PeerError> {
        let doing = "subscribing";
        let (client, woken) = open(&self.0.url).await?;
        client.batch_execute(&format!("LISTEN {topic}")).await.map_err(PeerError::client(doing))?;
        let take = format!(
            "DELETE FROM {topic} WHERE grp = $1 AND id = ANY (ARRAY( \
             SELECT id FROM {topic} WHERE grp = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING payload"
        );
        let take = client.prepare(&take).await.map_err(PeerError::client(doing))?;
        Ok(PostgresConsumer { client, take, group: group.to_owned(), woken })
    }
}

impl PostgresConsumer {
    /// Opens a transaction and takes events in it. The first statement does not wait for the answer to the BEGIN.
    async fn take(&self, max: usize) -> Result<Vec<Row>, tokio_postgres::Error> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let begin = self.client.batch_execute("BEGIN");
        let (_, rows) = try_join(begin, self.client.query(&self.take, &[&self.group, &max])).await?;
        Ok(rows)
    }
}

impl Consumer for PostgresConsumer {
    async fn receive(&mut self, max: usize, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<u64, PeerError> {
        let doing = "consuming from PostgreSQL";
        loop {
            let rows = self.take(max).await.map_err(PeerError::client(doing))?;
            for row in &rows {
                each(row.try_get(0).map_err(PeerError::client(doing))?);
            }
            self.client.batch_execute("COMMIT").await.map_err(PeerError::client(doing))?;
            if !rows.is_empty() {
                return Ok(rows.len() as u64);
            }
            if tokio::time::timeout(PATIENCE, self.woken.notified()).await.is_err() {
                return Ok(0);
            }
        }
    }
}
