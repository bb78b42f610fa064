//! The part of a store that a handle keeps in memory: the bounds of every stream, and where its newest events are.
//!
//! The index holds only what was committed. The writer adds its own commits, readers add the commits of other
//! processes; both use [`Index::apply`], which takes each commit once and in order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use millrace_model::{Offset, Partition, Stream, Timestamp, TopicKey};
use millrace_store::StreamBounds;

use crate::rows::codec::CommitSummary;

/// Consecutive offsets of a stream at consecutive seqs, appended by one commit. A run is never merged or split, so that
/// every process folds at the same boundaries and sums stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRun {
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) count: u64,
    /// The bytes of payloads, keys and headers.
    pub(crate) bytes: u64,
    /// How many of the events brought their id.
    pub(crate) brought: u64,
    pub(crate) first_ts: u64,
    pub(crate) last_ts: u64,
}

impl StoredRun {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.count
    }
}

/// A run without its sums: enough to find events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) count: u64,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.count
    }

    /// Returns the part within `[from, to)`, if any.
    pub(crate) fn clip(self, from: u64, to: u64) -> Option<Piece> {
        let (first, end) = (self.offset.max(from), self.end().min(to));
        let count = end.checked_sub(first).filter(|count| *count > 0)?;
        Some(Piece { offset: first, seq: self.seq + (first - self.offset), count })
    }
}

/// A row of `streams`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRow {
    pub(crate) id: i64,
    pub(crate) stream: Stream,
    /// Readers see no event below this offset.
    pub(crate) start: u64,
    /// Events below this offset are found through `loc`, the others through `commits`.
    pub(crate) folded: u64,
    /// The rows of events below this offset have been deleted.
    pub(crate) reclaimed: u64,
    /// Below this offset, single events may have been removed by compaction.
    pub(crate) compacted_to: u64,
    /// The bytes of the events from `reclaimed` to `folded`.
    pub(crate) bytes: u64,
    /// The time of the last folded event.
    pub(crate) last_ts: u64,
    pub(crate) dropped: bool,
    /// When the stream was dropped, by the clock of the batch that did it.
    pub(crate) dropped_at: u64,
}

impl StreamRow {
    pub(crate) fn new(id: i64, stream: Stream) -> StreamRow {
        StreamRow {
            id,
            stream,
            start: 1,
            folded: 1,
            reclaimed: 1,
            compacted_to: 1,
            bytes: 0,
            last_ts: 0,
            dropped: false,
            dropped_at: 0,
        }
    }

    /// Returns the checksum of all columns.
    pub(crate) fn crc(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        let StreamRow { start, folded, reclaimed, compacted_to, bytes, last_ts, dropped_at, .. } = *self;
        let (id, partition, dropped) = (self.id as u64, self.stream.partition.0.into(), self.dropped.into());
        for number in
            [id, partition, start, folded, reclaimed, compacted_to, bytes, last_ts, dropped, dropped_at]
        {
            hasher.update(&u64::to_le_bytes(number));
        }
        hasher.update(self.stream.topic.as_str().as_bytes());
        hasher.finalize()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct StreamState {
    pub(crate) row: StreamRow,
    pub(crate) next: u64,
    pub(crate) last_ts: u64,
    /// The unfolded runs, from `row.folded` up to `next`, without gaps.
    pub(crate) runs: VecDeque<StoredRun>,
    runs_bytes: u64,
}

impl StreamState {
    fn new(row: StreamRow) -> StreamState {
        StreamState { next: row.folded, last_ts: row.last_ts, row, runs: VecDeque::new(), runs_bytes: 0 }
    }

    /// Returns the offset below which events may be deleted.
    pub(crate) fn reclaim_to(&self) -> u64 {
        if self.row.dropped { self.next } else { self.row.start }
    }

    fn is_reclaimable(&self) -> bool {
        self.row.dropped || self.row.reclaimed < self.row.start
    }

    pub(crate) fn bounds(&self) -> StreamBounds {
        StreamBounds {
            stream: self.row.stream.clone(),
            start: Offset(self.row.start),
            next: Offset(self.next),
            bytes: self.row.bytes + self.runs_bytes,
            last_ts: Timestamp(self.last_ts),
        }
    }

    fn push(&mut self, run: StoredRun) {
        self.next = run.end();
        self.last_ts = run.last_ts;
        self.runs_bytes += run.bytes;
        self.runs.push_back(run);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The newest commit that the index knows.
    pub(crate) last: u64,
    /// The seq that the next event will get.
    pub(crate) next_seq: u64,
    pub(crate) unfolded_events: u64,
    pub(crate) unfolded_bytes: u64,
    /// Streams with rows that nobody may read any more.
    pub(crate) reclaimable: BTreeSet<i64>,
    /// Streams whose start has moved since the rows about their events were last purged (`purge.rs`).
    pub(crate) purgeable: BTreeSet<i64>,
    purged: HashMap<i64, u64>,
    by_name: HashMap<TopicKey, BTreeMap<Partition, i64>>,
    by_id: HashMap<i64, StreamState>,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { next_seq: 1, ..Index::default() }
    }

    pub(crate) fn get(&self, stream: &Stream) -> Option<&StreamState> {
        self.id_of(stream).and_then(|id| self.by_id.get(&id))
    }

    fn id_of(&self, stream: &Stream) -> Option<i64> {
        self.by_name.get(&stream.topic)?.get(&stream.partition).copied()
    }

    /// Returns the streams of a topic that have not been dropped, in order of partition.
    pub(crate) fn of_topic(&self, topic: &TopicKey) -> impl Iterator<Item = &StreamState> {
        self.by_name.get(topic).into_iter().flat_map(BTreeMap::values).filter_map(|id| self.by_id.get(id))
    }

    /// Removes a stream's name, unless the name belongs to a later stream.
    fn forget_name(&mut self, stream: &Stream, id: i64) {
        if self.id_of(stream) != Some(id) {
            return;
        }
        if let Some(partitions) = self.by_name.get_mut(&stream.topic) {
            partitions.remove(&stream.partition);
            if partitions.is_empty() {
                self.by_name.remove(&stream.topic);
            }
        }
    }

    pub(crate) fn by_id(&self, id: i64) -> Option<&StreamState> {
        self.by_id.get(&id)
    }

    /// Returns the streams that have not been dropped.
    pub(crate) fn live(&self) -> impl Iterator<Item = &StreamState> {
        self.by_name.values().flat_map(BTreeMap::values).filter_map(|id| self.by_id.get(id))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &StreamState> {
        self.by_id.values()
    }

    /// Adds commit `c`. `rows` are the present rows of the streams that the commit touched; a touched stream without a
    /// row has been deleted. Commits that the index already knows are skipped.
    pub(crate) fn apply(&mut self, c: u64, record: &CommitSummary, rows: Vec<StreamRow>) {
        if c <= self.last {
            return;
        }
        self.last = c;
        for id in &record.touched {
            if !rows.iter().any(|row| row.id == *id) {
                self.remove(*id);
            }
        }
        for row in rows {
            self.take_row(row);
        }
        for (id, run) in &record.runs {
            self.next_seq = self.next_seq.max(run.seq + run.count);
            self.push(*id, *run);
        }
    }

    /// Adds a run. A run of an unknown stream belongs to a dropped one and is ignored; so is a run below `folded`,
    /// which is found through `loc`.
    fn push(&mut self, id: i64, run: StoredRun) {
        let Some(state) = self.by_id.get_mut(&id) else { return };
        if run.offset < state.next {
            return;
        }
        self.unfolded_events += run.count;
        self.unfolded_bytes += run.bytes;
        state.push(run);
    }

    pub(crate) fn take_row(&mut self, row: StreamRow) {
        let id = row.id;
        if row.dropped {
            self.forget_name(&row.stream, id);
        } else {
            self.by_name.entry(row.stream.topic.clone()).or_default().insert(row.stream.partition, id);
        }
        let state = match self.by_id.entry(id) {
            std::collections::hash_map::Entry::Vacant(vacant) => vacant.insert(StreamState::new(row)),
            std::collections::hash_map::Entry::Occupied(occupied) => {
                let state = occupied.into_mut();
                state.next = state.next.max(row.folded);
                state.last_ts = state.last_ts.max(row.last_ts);
                state.row = row;
                state
            }
        };
        let (events, bytes) = forget_folded(state);
        let purged = self.purged.get(&id).copied().unwrap_or(1);
        if state.row.start > purged && !state.row.dropped {
            self.purgeable.insert(id);
        } else {
            self.purgeable.remove(&id);
        }
        let reclaimable = state.is_reclaimable();
        self.unfolded_events -= events.min(self.unfolded_events);
        self.unfolded_bytes -= bytes.min(self.unfolded_bytes);
        if reclaimable {
            self.reclaimable.insert(id);
        } else {
            self.reclaimable.remove(&id);
        }
    }

    /// Marks that the rows about events of the stream below `to` have been deleted.
    pub(crate) fn purged(&mut self, id: i64, to: u64) {
        self.purged.insert(id, to);
        if self.by_id.get(&id).is_none_or(|state| state.row.start <= to) {
            self.purgeable.remove(&id);
        }
    }

    fn remove(&mut self, id: i64) {
        self.reclaimable.remove(&id);
        self.purgeable.remove(&id);
        self.purged.remove(&id);
        let Some(state) = self.by_id.remove(&id) else { return };
        self.forget_name(&state.row.stream, id);
        self.unfolded_events -= state.runs.iter().map(|run| run.count).sum::<u64>().min(self.unfolded_events);
        self.unfolded_bytes -= state.runs_bytes.min(self.unfolded_bytes);
    }
}

/// Forgets the runs that `loc` holds now. Returns how many events and bytes those were.
fn forget_folded(state: &mut StreamState) -> (u64, u64) {
    let (mut events, mut bytes) = (0, 0);
    while let Some(run) = state.runs.pop_front_if(|run| run.offset < state.row.folded) {
        events += run.count;
        bytes += run.bytes;
    }
    state.runs_bytes -= bytes.min(state.runs_bytes);
    (events, bytes)
}
