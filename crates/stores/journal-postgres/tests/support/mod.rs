//! Things that the tests share: a schema of one's own on the server of `TEST_POSTGRES`, records, a proxy, and servers
//! with settings of their own.

// Every test file is a crate of its own and uses a part of this.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod proxy;
pub(crate) mod server;

use std::sync::Arc;

use millrace_journal::{Journal, JournalError, JournalReadLimit, OutboxId, Placed, Placing, Tip};
use millrace_journal_postgres::{PostgresAddress, PostgresJournal};
use postgres::{Client, NoTls};

pub(crate) const EVERYTHING: JournalReadLimit =
    JournalReadLimit { records_max: 1_000_000, bytes_max: 1 << 30 };

/// A schema that nobody else uses. Removed at the end.
pub(crate) struct Schema {
    pub(crate) name: String,
    url: String,
}

impl Schema {
    /// Returns nothing if there is no server for tests.
    pub(crate) fn new() -> Option<Schema> {
        let Ok(url) = std::env::var("TEST_POSTGRES") else {
            println!("skipped: TEST_POSTGRES is not set (cargo xtask test starts the engines)");
            return None;
        };
        Some(Schema::on(&url))
    }

    pub(crate) fn on(url: &str) -> Schema {
        let name = format!("millrace_test_{:016x}", rand::random::<u64>());
        Schema { name, url: url.to_owned() }
    }

    /// The address, with `more` parameters such as `timeout_ms=500`.
    pub(crate) fn url_with(&self, more: &str) -> String {
        let sign = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{sign}schema={}&{more}", self.url, self.name)
    }

    /// The address with another host and port in it.
    pub(crate) fn url_at(&self, host_and_port: &str, more: &str) -> String {
        let url = self.url_with(more);
        let (scheme, rest) = url.split_once("://").unwrap();
        let end = rest.find(['/', '?']).unwrap();
        let user = rest[..end].rsplit_once('@').unwrap().0;
        format!("{scheme}://{user}@{host_and_port}{}", &rest[end..])
    }

    /// The address for another user.
    pub(crate) fn url_as(&self, user: &str) -> String {
        let url = self.url_with("");
        let (scheme, rest) = url.split_once("://").unwrap();
        let (_, rest) = rest.split_once('@').unwrap();
        format!("{scheme}://{user}@{rest}")
    }

    pub(crate) fn journal(&self) -> PostgresJournal {
        PostgresJournal::open(&self.url_with("")).unwrap()
    }

    pub(crate) fn checked(&self) -> PostgresJournal {
        let journal = self.journal();
        journal.check().unwrap();
        journal
    }

    /// A journal with small partitions, checked.
    pub(crate) fn with_partitions(&self, records: u32) -> PostgresJournal {
        let address = PostgresAddress::parse(&self.url_with("")).unwrap();
        let journal = PostgresJournal::with_partitions(address, records);
        journal.check().unwrap();
        journal
    }

    /// A connection of the application or of an administrator.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url, NoTls).unwrap()
    }

    /// Runs a statement in which `{s}` stands for the schema, and returns the first column as text.
    pub(crate) fn query(&self, sql: &str) -> Vec<String> {
        let rows = self.client().simple_query(&sql.replace("{s}", &self.name)).unwrap();
        let rows = rows.into_iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        rows.collect()
    }

    pub(crate) fn count(&self, sql: &str) -> i64 {
        self.query(sql)[0].parse().unwrap()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!(
            "SET lock_timeout = '30s'; SET synchronous_commit = local; DROP SCHEMA IF EXISTS {} CASCADE",
            self.name
        );
        if let Ok(mut client) = Client::connect(&self.url, NoTls) {
            let _ = client.batch_execute(&sql);
        }
    }
}

/// A tip that only depends on the number.
pub(crate) fn tip(n: u64) -> Tip {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Tip(bytes)
}

pub(crate) fn record(n: u64) -> Vec<u8> {
    format!("record {n}").into_bytes()
}

pub(crate) fn place(journal: &PostgresJournal, n: u64) -> Result<Placed, JournalError> {
    place_settling(journal, n, &[])
}

pub(crate) fn place_settling(
    journal: &PostgresJournal,
    n: u64,
    settles: &[OutboxId],
) -> Result<Placed, JournalError> {
    let prev = if n == 0 { Tip::START } else { tip(n - 1) };
    journal.place(&Placing { n, prev, tip: tip(n), record: &record(n), settles })
}

pub(crate) fn place_up_to(journal: &PostgresJournal, from: u64, to: u64) {
    for n in from..=to {
        assert_eq!(place(journal, n).unwrap(), Placed::Yes, "{n}");
    }
}

pub(crate) fn numbers(journal: &PostgresJournal, from: u64) -> Vec<u64> {
    journal.read(from, EVERYTHING).unwrap().into_iter().map(|(n, _)| n).collect()
}

/// Runs a function in several threads that start together.
pub(crate) fn together<T: Send + 'static>(
    threads: usize,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let barrier = Arc::new(std::sync::Barrier::new(threads));
    let work = Arc::new(work);
    let started: Vec<_> = (0..threads)
        .map(|thread| {
            let (barrier, work) = (barrier.clone(), work.clone());
            std::thread::spawn(move || {
                barrier.wait();
                work(thread)
            })
        })
        .collect();
    started.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[track_caller]
pub(crate) fn assert_unknown<T: std::fmt::Debug>(outcome: Result<T, JournalError>, expected: &str) -> String {
    match outcome {
        Err(JournalError::Unknown(cause)) if cause.text().contains(expected) => cause.text().to_owned(),
        other => panic!("expected Unknown with {expected:?}, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, JournalError>, expected: &str) -> String {
    match outcome {
        Err(JournalError::Refused(cause)) if cause.text().contains(expected) => cause.text().to_owned(),
        other => panic!("expected Refused with {expected:?}, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_unfit<T: std::fmt::Debug>(outcome: Result<T, JournalError>, expected: &str) {
    match outcome {
        Err(JournalError::Unfit(text)) if text.contains(expected) => {}
        other => panic!("expected Unfit with {expected:?}, found {other:?}"),
    }
}
