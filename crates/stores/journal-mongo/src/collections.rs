//! The three collections, with the concerns that every request to them has.

use std::time::Duration;

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::options::{Acknowledgment, CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Collection, Database};

use crate::failure::RequestError;

pub(crate) const JOURNAL: &str = "journal";
pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const PARTS: &str = "parts";

/// Clones share the client behind them.
#[derive(Clone, Debug)]
pub(crate) struct Collections {
    pub(crate) database: Database,
    pub(crate) journal: Collection<RawDocumentBuf>,
    pub(crate) manifest: Collection<RawDocumentBuf>,
    pub(crate) parts: Collection<RawDocumentBuf>,
    /// After this time the engine itself gives up.
    pub(crate) engine_timeout: Duration,
}

impl Collections {
    pub(crate) fn new(database: Database, engine_timeout: Duration) -> Collections {
        let options = options(engine_timeout);
        let collection = |name| database.collection_with_options(name, options.clone());
        Collections {
            journal: collection(JOURNAL),
            manifest: collection(MANIFEST),
            parts: collection(PARTS),
            engine_timeout,
            database,
        }
    }

    /// Returns the concerns of every collection.
    pub(crate) fn options(&self) -> CollectionOptions {
        options(self.engine_timeout)
    }

    /// Returns a document that can no longer disappear, or nothing if there was none when the engine looked.
    pub(crate) async fn find_one_settled(
        &self,
        collection: &Collection<RawDocumentBuf>,
        filter: Document,
        has_elections: bool,
    ) -> Result<Option<RawDocumentBuf>, RequestError> {
        let find = collection.find_one(filter).read_concern(settled(has_elections));
        Ok(find.max_time(self.engine_timeout).await?)
    }
}

/// Reads are from the primary (an option of the client) and see only what a majority has.
fn options(engine_timeout: Duration) -> CollectionOptions {
    CollectionOptions::builder()
        .read_concern(ReadConcern::majority())
        .write_concern(write_concern(engine_timeout))
        .build()
}

/// On the disks of a majority of the members. The limit is for members that do not answer; without it the engine would
/// wait for them as long as it takes.
pub(crate) fn write_concern(timeout: Duration) -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).w_timeout(timeout).build()
}

/// Returns the read concern for answers that must not be from the past. With `majority` alone, a primary that does not
/// know yet that another one was elected, or that has just been elected, answers with less than was confirmed;
/// `linearizable` makes it prove itself to a majority first. Engines without elections do not accept it.
pub(crate) fn settled(has_elections: bool) -> ReadConcern {
    if has_elections { ReadConcern::linearizable() } else { ReadConcern::majority() }
}
