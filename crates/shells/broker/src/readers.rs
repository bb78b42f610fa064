//! The reader threads: read whatever the engine needs from the store.
//!
//! The queue needs no bound of its own: the engine has at most one page and a few single events under way per group and
//! partition, one retention check per partition, one scan of delayed events and one check of a new schema per topic.

use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millrace_bus::{Compared, DueBy, Input, ReadPage, RetainedCheck, RetainedOutcome, StoredTopic, Token};
use millrace_model::{Offset, Space, Stream, Timestamp, TopicKey, keys};
use millrace_shell::WorkQueue;
use millrace_store::{KeyRange, ReadLimit, Retention, Store, StoreError};

use crate::command::BrokerInbox;
use crate::metrics::Metrics;
use crate::{boot, watcher};

#[derive(Debug)]
pub(crate) enum ReadJob {
    Read { token: Token, stream: Stream, from: Offset, limit: ReadLimit },
    Seek { token: Token, streams: Vec<Stream>, ts: Timestamp },
    FindStart { token: Token, stream: Stream, rule: Retention },
    ScanDue { token: Token, waits: DueBy, rows_max: usize },
    ReadTopic { token: Token, topic: TopicKey },
    CheckRetained { token: Token, check: RetainedCheck },
}

pub(crate) type ReadQueue = WorkQueue<ReadJob>;

pub(crate) struct StoreReader {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) jobs: Arc<ReadQueue>,
    pub(crate) inbox: Arc<BrokerInbox>,
    pub(crate) metrics: Arc<Metrics>,
}

impl StoreReader {
    pub(crate) fn run(self) {
        while let Some(job) = self.jobs.next() {
            self.metrics.reads.fetch_add(1, Relaxed);
            let input = match job {
                ReadJob::Read { token, stream, from, limit } => Input::Page {
                    token,
                    page: self.answer(&format_args!("reading {stream} from {from}"), || {
                        self.page(&stream, from, limit)
                    }),
                },
                ReadJob::Seek { token, streams, ts } => {
                    let seek = || streams.iter().map(|stream| self.store.seek(stream, ts)).collect();
                    Input::Found { token, offsets: self.answer(&"seeking a time", seek) }
                }
                ReadJob::FindStart { token, stream, rule } => {
                    let find = || Ok(vec![self.store.retention_start(&stream, rule)?]);
                    Input::Found { token, offsets: self.answer(&format_args!("retention of {stream}"), find) }
                }
                ReadJob::ScanDue { token, waits, rows_max } => {
                    let rows = self.answer(&"delayed events", || self.due(waits, rows_max));
                    Input::DueRows { token, rows }
                }
                ReadJob::ReadTopic { token, topic } => {
                    let found = self.answer(&format_args!("looking up {topic}"), || self.topic(&topic));
                    Input::TopicRead { token, found }
                }
                ReadJob::CheckRetained { token, check } => {
                    let what = format_args!("comparing retained events with a new schema");
                    Input::RetainedChecked { token, outcome: self.answer(&what, || self.retained(&check)) }
                }
            };
            self.inbox.complete([input]);
        }
    }

    fn page(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<ReadPage, StoreError> {
        let page = self.store.read(stream, from, limit)?;
        if !page.damaged.is_empty() {
            self.metrics.damaged.fetch_add(page.damaged.len() as u64, Relaxed);
            tracing::error!(%stream, offsets = ?page.damaged, "damaged events were set aside and cannot be delivered");
        }
        Ok(ReadPage { events: page.events, through: page.through })
    }

    fn retained(&self, check: &RetainedCheck) -> Result<RetainedOutcome, StoreError> {
        let failed = RefCell::new(None);
        let read = |stream: &Stream, from, events_max, bytes_max| {
            let page = self.page(stream, from, ReadLimit { events_max, bytes_max });
            page.map_err(|error| failed.replace(Some(error))).ok()
        };
        let scan = |from: &str, rows_max| {
            let rows = self.store.scan(Space::Due, &KeyRange { from: from.to_owned(), to: None }, rows_max);
            let rows = rows.map_err(|error| failed.replace(Some(error))).ok()?;
            Some(rows.into_iter().map(|row| (row.key, row.value)).collect())
        };
        let outcome = check.run(read, scan);
        match (outcome, failed.into_inner()) {
            (_, Some(error)) => Err(error),
            // If no read failed there is an outcome.
            (outcome, None) => Ok(outcome.unwrap_or(RetainedOutcome::Match(Compared::default()))),
        }
    }

    fn due(&self, waits: DueBy, rows_max: usize) -> Result<Vec<(String, bytes::Bytes)>, StoreError> {
        let rows = self.store.scan(Space::Due, &boot::due_range(waits), rows_max)?;
        Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
    }

    fn topic(&self, topic: &TopicKey) -> Result<Option<StoredTopic>, StoreError> {
        let key = keys::topic(topic);
        // Up to the smallest key after it.
        let range = KeyRange { to: Some(format!("{key}\0")), from: key };
        let Some(row) = self.store.scan(Space::Topics, &range, 1)?.pop() else { return Ok(None) };
        let streams = self.store.streams()?.into_iter().filter(|bounds| bounds.stream.topic == *topic);
        Ok(Some(StoredTopic { row: row.value, bounds: streams.map(watcher::log_bounds).collect() }))
    }

    /// Returns `None` when the store cannot be read just now. A panic counts as that: the engine waits for every answer
    /// it asked for, and if a reader vanished a group would wait for ever.
    fn answer<T>(&self, what: &dyn Display, read: impl FnOnce() -> Result<T, StoreError>) -> Option<T> {
        let reason = match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store panicked".to_owned(),
        };
        self.metrics.reads_failed.fetch_add(1, Relaxed);
        tracing::warn!(%what, reason, "a read failed, it will be tried again");
        None
    }
}
