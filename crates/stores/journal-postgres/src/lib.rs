//! A journal in PostgreSQL: the tables of one schema, and one statement that places a record if its number is free.
//!
//! The same schema holds the outbox: an application calls `millrace_publish` inside a transaction of its own, and the
//! event is published if and only if that transaction commits. The statement that places a record deletes the rows
//! whose events are in this record.
//!
//! A journal has up to three connections, each opened at its first use and again after an error: one only for placing,
//! so that a commit never waits behind anything else; one for reading records and the outbox; one for snapshots, the
//! manifest and partitions. Every request has a deadline (`timeout_ms`, 10 s), which covers waiting for the connection,
//! connecting, and the answer.
//!
//! The connections must be direct. A pooler such as PgBouncer loses their settings, and in transaction mode also their
//! prepared statements: it is recognised when connecting, and refused.
//!
//! Not in this crate: the contents of a record, who may place one, and when anything is read, trimmed or retried.
//!
//! Start with [`PostgresJournal`]. The tables, the statements and the rights that a role needs are described in
//! `docs/formats/journal-postgres.md`.

mod address;
mod failure;
mod fitness;
mod journal;
mod keeping;
mod lane;
mod outbox;
mod partitions;
mod passfile;
mod placing;
mod plain;
mod reading;
mod schema;
mod session;
mod statements;
mod tls;

pub use address::{AddressError, PostgresAddress};
pub use journal::PostgresJournal;
pub use plain::PlainConnection;
/// The values that a statement of [`PlainConnection`] takes.
pub use tokio_postgres::types::ToSql;
