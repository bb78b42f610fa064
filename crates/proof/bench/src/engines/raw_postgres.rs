//! Raw PostgreSQL: the tables and statements that somebody would write by hand, in the schema of the store.

use millrace_journal_postgres::{PlainConnection, ToSql};

use super::raw::{RawEngine, SqlProbe, UniqueIds};
use crate::error::BenchError;

pub(super) fn open_postgres(url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    let connection = PlainConnection::open(url).map_err(|error| BenchError::StoreUrl(error.to_string()))?;
    let of = |text: &str| text.replace("{schema}", &connection.quoted_schema());
    let sql = TableStatements {
        one: of("INSERT INTO {schema}.raw_events (topic, payload) VALUES ($1, $2)"),
        many: of("INSERT INTO {schema}.raw_many (topic, payload) SELECT $1, p FROM unnest($2::text[]) AS p"),
        with_ids: of("INSERT INTO {schema}.raw_ids (topic, id, payload) \
                      SELECT $1, i, p FROM unnest($2::text[], $3::text[]) AS e (i, p)"),
        order: of("INSERT INTO {schema}.raw_orders (payload) VALUES ($1)"),
        publish: of("SELECT {schema}.millrace_publish($1::text, $2::text)"),
        fill: of("SELECT {schema}.millrace_publish($1::text, $2::text) FROM generate_series(1, $3::bigint)"),
        outbox: of("SELECT 1 FROM {schema}.millrace_outbox LIMIT 1"),
        tables: of(TABLES),
    };
    Ok(Box::new(RawTables { connection, sql, are_made: false }))
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS {schema}.raw_events
    (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload text NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.raw_many
    (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload text NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.raw_ids
    (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, id text NOT NULL UNIQUE, payload text NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.raw_orders
    (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL);";

const TOPIC: &str = "bench.raw";
/// The topic of events that go through the outbox.
pub(super) const OUTBOX_TOPIC: &str = "bench.outbox";

struct TableStatements {
    one: String,
    many: String,
    with_ids: String,
    order: String,
    publish: String,
    fill: String,
    outbox: String,
    tables: String,
}

struct RawTables {
    connection: PlainConnection,
    sql: TableStatements,
    are_made: bool,
}

impl RawTables {
    /// Makes the tables at their first use: by then the server has made the schema.
    fn make(&mut self) -> Result<(), BenchError> {
        if !self.are_made {
            self.connection.run(&self.sql.tables)?;
            self.are_made = true;
        }
        Ok(())
    }

    fn execute(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64, BenchError> {
        Ok(self.connection.execute(sql, parameters)?)
    }
}

impl RawEngine for RawTables {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        self.make()?;
        let payload = String::from_utf8_lossy(bytes);
        self.execute(&self.sql.one, &[&TOPIC, &payload.as_ref()]).map(drop)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        Ok(self.connection.remove_schema()?)
    }

    fn sql(&mut self) -> Option<&mut dyn SqlProbe> {
        Some(self)
    }
}

impl SqlProbe for RawTables {
    fn insert_rows(&mut self, payloads: &[&str], ids: UniqueIds) -> Result<(), BenchError> {
        self.make()?;
        match ids {
            UniqueIds::None => self.execute(&self.sql.many, &[&TOPIC, &payloads]).map(drop),
            UniqueIds::Indexed => {
                let id = |_| format!("{:032x}", rand::random::<u128>());
                let ids: Vec<String> = payloads.iter().map(id).collect();
                self.execute(&self.sql.with_ids, &[&TOPIC, &ids, &payloads]).map(drop)
            }
        }
    }

    fn transact(&mut self, payload: &str, publishes: bool) -> Result<(), BenchError> {
        self.make()?;
        self.execute("BEGIN", &[])?;
        self.execute(&self.sql.order, &[&payload])?;
        if publishes {
            self.execute(&self.sql.publish, &[&OUTBOX_TOPIC, &payload])?;
        }
        self.execute("COMMIT", &[]).map(drop)
    }

    fn fill_outbox(&mut self, payload: &str, events: u64) -> Result<(), BenchError> {
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        self.execute(&self.sql.fill, &[&OUTBOX_TOPIC, &payload, &events]).map(drop)
    }

    fn is_outbox_empty(&mut self) -> Result<bool, BenchError> {
        Ok(self.execute(&self.sql.outbox, &[])? == 0)
    }
}
