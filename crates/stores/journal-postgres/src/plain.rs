//! A connection without a journal, made like those of a journal: benchmarks measure the journal against tables that are
//! written by hand, and remove the schema that they have made.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_journal::JournalError;
use tokio_postgres::types::ToSql;

use crate::address::{AddressError, PostgresAddress};
use crate::lane::{Engine, Lane, Purpose};

/// A connection for statements of the caller's own. Opened by the first of them, and again after an error. Each statement
/// has the deadline of the URL.
pub struct PlainConnection {
    lane: Lane,
    engine: Arc<Engine>,
}

impl PlainConnection {
    /// Takes the URL apart and connects to nothing yet.
    ///
    /// # Errors
    ///
    /// If the URL is wrong, see [`PostgresAddress::parse`].
    pub fn open(url: &str) -> Result<PlainConnection, AddressError> {
        let address = PostgresAddress::parse(url)?;
        let engine = Arc::new(Engine { address, promised_replication: AtomicBool::new(false) });
        Ok(PlainConnection { lane: Lane::new(Purpose::Plain, &engine), engine })
    }

    /// Returns the name of the URL's schema as SQL, in quotes.
    pub fn quoted_schema(&self) -> String {
        self.engine.address.quoted_schema()
    }

    /// Runs a statement, prepared at its first use. Returns how many rows it has changed or found.
    ///
    /// # Errors
    ///
    /// If the server refuses the statement or cannot be reached.
    pub fn execute(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64, JournalError> {
        self.lane.run("running a statement", async |requests| {
            let statement = requests.prepared(sql).await?;
            Ok(requests.client.execute(&statement, parameters).await?)
        })
    }

    /// Runs several statements that have no parameters, in one request.
    ///
    /// # Errors
    ///
    /// See [`PlainConnection::execute`].
    pub fn run(&self, sql: &str) -> Result<(), JournalError> {
        self.lane.run("running statements", async |requests| Ok(requests.client.batch_execute(sql).await?))
    }

    /// Deletes the schema of the URL with all that is in it.
    ///
    /// # Errors
    ///
    /// See [`PlainConnection::execute`].
    pub fn remove_schema(&self) -> Result<(), JournalError> {
        self.run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.quoted_schema()))
    }
}

impl fmt::Debug for PlainConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainConnection").field("address", &self.engine.address).finish_non_exhaustive()
    }
}
