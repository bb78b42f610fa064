//! Shared by the tests of this crate: a journal on the real engine in a database of its own, and short records.

// Each test binary uses a part of this file.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod stub;

use std::time::Duration;

use millrace_journal::{Journal, JournalError, JournalReadLimit, PartName, Placed, Placing, Tip};
use millrace_journal_mongo::{MongoJournal, MongoSettings};
use mongodb::bson::oid::ObjectId;

/// Each test has a database of its own on the engine, which is dropped at the end.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl TestDatabase {
    /// Returns `None`, and says so, if no engine is there.
    pub(crate) fn new() -> Option<TestDatabase> {
        match std::env::var("TEST_MONGO") {
            // The driver knows no options of ours.
            Ok(url) => Some(TestDatabase {
                url: url.replace("allow_unsynced=true", ""),
                name: format!("millrace_test_{}", ObjectId::new()),
            }),
            Err(_) => {
                println!("skipped: TEST_MONGO is not set (cargo xtask test starts the engines)");
                None
            }
        }
    }

    pub(crate) fn open(&self) -> MongoJournal {
        let url = with_option(&self.url, "allow_unsynced=true");
        MongoJournal::new(MongoSettings::from_url_and_database(&url, &self.name).unwrap()).unwrap()
    }

    /// Returns a journal that was checked.
    pub(crate) fn checked(&self) -> MongoJournal {
        let journal = self.open();
        journal.check().unwrap();
        journal
    }

    /// Runs requests of the driver itself in this database.
    pub(crate) fn with_driver<T, F: Future<Output = T>>(
        &self,
        request: impl FnOnce(mongodb::Database) -> F,
    ) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(&self.url).await.unwrap();
            let result = request(client.database(&self.name)).await;
            client.shutdown().immediate(true).await;
            result
        })
    }
}

pub(crate) fn with_option(url: &str, option: &str) -> String {
    let hosts_end = url.find("://").map_or(0, |at| at + 3);
    let slash = if url[hosts_end..].contains('/') { "" } else { "/" };
    let mark = if url.contains('?') { "&" } else { "?" };
    format!("{url}{slash}{mark}{option}")
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.with_driver(|database| async move { database.drop().await.unwrap() });
    }
}

pub(crate) fn place(journal: &MongoJournal, n: u64, record: &[u8]) -> Result<Placed, JournalError> {
    journal.place(&Placing { n, prev: Tip::START, tip: Tip::START, record, settles: &[] })
}

pub(crate) fn limit(records_max: usize, bytes_max: usize) -> JournalReadLimit {
    JournalReadLimit { records_max, bytes_max }
}

pub(crate) fn numbers(journal: &MongoJournal, from: u64) -> Vec<u64> {
    let found = journal.read(from, limit(1_000_000, 1 << 30)).unwrap();
    found.into_iter().map(|(n, _)| n).collect()
}

pub(crate) fn part(name: &str) -> PartName {
    PartName(name.to_owned())
}

/// A journal whose requests end after a time that a test can wait for.
pub(crate) fn impatient(address: std::net::SocketAddr, timeout: Duration) -> MongoJournal {
    let url = format!("mongodb://{address}/millrace?timeout_ms={}", timeout.as_millis());
    MongoJournal::new(MongoSettings::from_url(&url).unwrap()).unwrap()
}
