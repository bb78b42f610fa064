//! A database without a journal, reached like that of a journal: benchmarks measure the journal against plain inserts,
//! and remove the database that they have made.

use millrace_journal::JournalError;
use mongodb::Collection;
use mongodb::bson::RawDocumentBuf;

use crate::connection::Connection;
use crate::records::document_of;
use crate::settings::MongoSettings;

const COLLECTION: &str = "plain";

/// The database of a URL. Connects at the first request.
#[derive(Debug)]
pub struct PlainDatabase {
    connection: Connection,
}

impl PlainDatabase {
    /// # Errors
    ///
    /// [`JournalError::Unknown`] if the process can start no more threads.
    pub fn open(settings: MongoSettings) -> Result<PlainDatabase, JournalError> {
        Ok(PlainDatabase { connection: Connection::new(settings)? })
    }

    /// Inserts a document with this `_id`, and waits until a majority has it in its journal on disk.
    ///
    /// # Errors
    ///
    /// If the engine refuses the request or cannot be reached.
    pub fn insert(&self, n: i64, bytes: &[u8]) -> Result<(), JournalError> {
        let document = document_of(n, bytes);
        self.connection.run("inserting a document", move |collections| async move {
            let options = collections.options();
            let plain: Collection<RawDocumentBuf> =
                collections.database.collection_with_options(COLLECTION, options);
            Ok(plain.insert_one(document).await.map(drop)?)
        })
    }

    /// Deletes the database of the URL with all that is in it.
    ///
    /// # Errors
    ///
    /// See [`PlainDatabase::insert`].
    pub fn remove(&self) -> Result<(), JournalError> {
        self.connection
            .run("deleting the database", |collections| async move { Ok(collections.database.drop().await?) })
    }
}
