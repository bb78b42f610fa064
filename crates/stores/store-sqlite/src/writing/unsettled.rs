//! Commits that are durable in a journal and not in the tables yet, and what the next commits must know of them.
//!
//! Settling writes many of them in one transaction (`settle.rs`), after they were answered. Reads of what they changed
//! settle first, so that nobody reads around them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{EventId, Partition, Space, Stream, TopicKey};
use millrace_store::{FoldRecord, RecordedChange};

use crate::dedupe::hash::HashKey;

/// An estimate of what a change takes in memory beside its content, so that many empty ones reach the bound, too.
const CHANGE_BYTES: usize = 64;

/// All unsettled commits of a handle.
#[derive(Debug, Default)]
pub(crate) struct UnsettledCommits {
    /// Nobody has begun to settle these.
    waiting: Unsettled,
    /// These are being written to the tables, or could not be written so far. Lookups find them here until the tables
    /// have them.
    settling: Option<Arc<Unsettled>>,
}

/// Commits that are settled together, and their effects by name.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    pub(crate) records: Vec<FoldRecord>,
    streams: HashMap<Stream, UnsettledStream>,
    rows: RowChanges,
    ids: HashMap<u64, UnsettledId>,
    /// How many ids were brought, also those that were brought again.
    ids_brought: usize,
    size: UnsettledSize,
}

/// The amount of work that settling is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnsettledSize {
    pub(crate) events: usize,
    /// The bytes of events and rows.
    pub(crate) bytes: usize,
}

/// The end of a stream behind its unsettled events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsettledStream {
    pub(crate) number: u64,
    pub(crate) next: u64,
    pub(crate) last_ts: u64,
}

#[derive(Debug)]
struct UnsettledId {
    /// How many ids were brought before this one.
    ordinal: usize,
    topic: TopicKey,
    id: EventId,
    partition: Partition,
    offset: u64,
    ts: u64,
}

/// Rows by name, `None` for a deleted row.
#[derive(Debug, Default)]
pub(crate) struct RowChanges(HashMap<Space, HashMap<String, Option<Bytes>>>);

/// The part of a store that a reader is about to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Stream(&'a Stream),
    Rows(Space),
    Everything,
}

impl RowChanges {
    /// Returns the row, or that it is deleted; the outer `None` says that it is not changed here.
    pub(crate) fn get(&self, space: Space, key: &str) -> Option<Option<Bytes>> {
        self.0.get(&space)?.get(key).cloned()
    }

    pub(crate) fn set(&mut self, space: Space, key: &str, value: Option<Bytes>) {
        let rows = self.0.entry(space).or_default();
        match rows.get_mut(key) {
            Some(standing) => *standing = value,
            None => {
                rows.insert(key.to_owned(), value);
            }
        }
    }

    /// Returns whether rows of the space were written, deleted ones included.
    pub(crate) fn touches(&self, space: Space) -> bool {
        self.0.contains_key(&space)
    }
}

impl Unsettled {
    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn add(&mut self, record: FoldRecord, key: HashKey) {
        self.size.bytes += record.changes.len() * CHANGE_BYTES;
        for change in &record.changes {
            match change {
                RecordedChange::Put { space, key, value } => {
                    self.size.bytes += key.len() + value.len();
                    self.rows.set(*space, key, Some(value.clone()));
                }
                RecordedChange::Delete { space, key } => {
                    self.size.bytes += key.len();
                    self.rows.set(*space, key, None);
                }
                RecordedChange::Append { stream, number, events } => {
                    let Some(last) = events.last() else { continue };
                    let end =
                        UnsettledStream { number: *number, next: last.offset.0 + 1, last_ts: last.ts.0 };
                    match self.streams.get_mut(stream) {
                        Some(known) => *known = end,
                        None => {
                            self.streams.insert(stream.clone(), end);
                        }
                    }
                    self.size.events += events.len();
                    for event in events {
                        self.size.bytes += event.body.bytes();
                        if event.is_brought {
                            let (topic, id) = (stream.topic.clone(), event.id.clone());
                            let (partition, offset, ts) = (stream.partition, event.offset.0, event.ts.0);
                            let (hash, ordinal) = (key.of_id(&topic, &id), self.ids_brought);
                            self.ids.insert(hash, UnsettledId { ordinal, topic, id, partition, offset, ts });
                            self.ids_brought += 1;
                        }
                    }
                }
                // These are never deferred (`plain.rs`).
                RecordedChange::Remove { .. }
                | RecordedChange::Drop { .. }
                | RecordedChange::Start { .. } => {}
            }
        }
        self.records.push(record);
    }

    fn has(&self, wanted: Wanted<'_>) -> bool {
        match wanted {
            Wanted::Stream(stream) => self.streams.contains_key(stream),
            // The store writes these rows itself when events get into the tables.
            Wanted::Rows(Space::OffPriority) => self.size.events > 0,
            Wanted::Rows(space) => self.rows.touches(space),
            Wanted::Everything => !self.is_empty(),
        }
    }
}

impl UnsettledCommits {
    /// Adds a commit. Returns how much waits now, and whether nothing did before.
    pub(crate) fn add(&mut self, record: FoldRecord, key: HashKey) -> (UnsettledSize, bool) {
        let is_first = self.waiting.is_empty();
        self.waiting.add(record, key);
        (self.waiting.size, is_first)
    }

    /// Returns how much is not in the tables yet.
    pub(crate) fn size(&self) -> UnsettledSize {
        let settling = self.settling.as_ref().map_or(UnsettledSize::default(), |settling| settling.size);
        let UnsettledSize { events, bytes } = self.waiting.size;
        UnsettledSize { events: events + settling.events, bytes: bytes + settling.bytes }
    }

    pub(crate) fn has(&self, wanted: Wanted<'_>) -> bool {
        self.newest_first().any(|unsettled| unsettled.has(wanted))
    }

    /// See [`RowChanges::touches`].
    pub(crate) fn touches(&self, space: Space) -> bool {
        self.newest_first().any(|unsettled| unsettled.rows.touches(space))
    }

    /// See [`RowChanges::get`].
    pub(crate) fn row(&self, space: Space, key: &str) -> Option<Option<Bytes>> {
        self.newest_first().find_map(|unsettled| unsettled.rows.get(space, key))
    }

    pub(crate) fn stream(&self, stream: &Stream) -> Option<UnsettledStream> {
        self.newest_first().find_map(|unsettled| unsettled.streams.get(stream).copied())
    }

    /// Returns the highest number of a stream with unsettled events.
    pub(crate) fn last_number(&self) -> u64 {
        self.newest_first()
            .flat_map(|unsettled| unsettled.streams.values())
            .map(|stream| stream.number)
            .max()
            .unwrap_or(0)
    }

    /// Returns partition, offset and time of the newest event with this id, if the id is among the newest `ids_max`.
    pub(crate) fn event(
        &self,
        hash: u64,
        topic: &TopicKey,
        id: &EventId,
        ids_max: usize,
    ) -> Option<(Partition, u64, u64)> {
        let mut newer = 0;
        for unsettled in self.newest_first() {
            if let Some(found) = unsettled.ids.get(&hash) {
                let is_same = found.topic == *topic && found.id == *id;
                let is_remembered = newer + unsettled.ids_brought - found.ordinal <= ids_max;
                let place = (found.partition, found.offset, found.ts);
                return (is_same && is_remembered).then_some(place);
            }
            newer += unsettled.ids_brought;
        }
        None
    }

    /// Returns how many ids were brought by unsettled events.
    pub(crate) fn ids_brought(&self) -> usize {
        self.newest_first().map(|unsettled| unsettled.ids_brought).sum()
    }

    /// Returns the commits to be written to the tables next, oldest first: those of an attempt that failed, or all that
    /// wait. Called by one thread at a time, until it has called [`UnsettledCommits::settled`].
    pub(crate) fn begin_settling(&mut self) -> Option<Arc<Unsettled>> {
        if self.settling.is_none() && !self.waiting.is_empty() {
            self.settling = Some(Arc::new(std::mem::take(&mut self.waiting)));
        }
        self.settling.clone()
    }

    /// Forgets the commits of the last [`UnsettledCommits::begin_settling`], which are in the tables.
    pub(crate) fn settled(&mut self) {
        self.settling = None;
    }

    fn newest_first(&self) -> impl Iterator<Item = &Unsettled> {
        std::iter::once(&self.waiting).chain(self.settling.as_deref())
    }
}
