//! Resolves batches: every append gets its offset, time and id before anything is inserted.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_model::{
    Append, Appended, Batch, Delay, EventBody, EventId, Offset, Partition, Space, Stream, TakenId, Timestamp,
    TopicKey, TopicRow, keys,
};
use millrace_resolve as resolve;
use rusqlite::{OptionalExtension, params};

use crate::dedupe::tombstones;
use crate::error::{Attempt, SqliteFault};
use crate::reading::index::StreamRow;
use crate::rows::row;
use crate::rows::tables::Damaged;
use crate::store_core::StoreCore;
use crate::writing::target::CommitTarget;

/// A stream as this commit will leave it.
pub(crate) struct Staged {
    /// `id` is 0 until a new stream is inserted.
    pub(crate) row: StreamRow,
    pub(crate) row_changed: bool,
    pub(crate) next: u64,
    pub(crate) last_ts: u64,
    /// The first offset that this commit appends.
    pub(crate) first: u64,
    /// The start before this commit.
    pub(crate) start_before: u64,
    /// The number that a new stream gets, if a record of the journal says it.
    pub(crate) number: Option<i64>,
}

/// An event that will become a row.
pub(crate) struct StagedEvent<'a> {
    /// The position among the appends of the commit, in order of operations.
    pub(crate) ordinal: usize,
    /// The record of the journal that holds this event, counted within the transaction.
    pub(crate) record: usize,
    pub(crate) staged: usize,
    pub(crate) offset: u64,
    pub(crate) ts: u64,
    pub(crate) id: EventId,
    /// The hash of topic and id, if the event brought its id.
    pub(crate) hash: Option<u64>,
    pub(crate) body: &'a Arc<EventBody>,
}

/// An id that a client brings.
struct Wanted<'a> {
    topic: &'a TopicKey,
    id: &'a EventId,
    hash: u64,
    window_ms: u64,
}

pub(crate) struct CommitStage<'a> {
    pub(crate) streams: Vec<Staged>,
    pub(crate) entries: Vec<StagedEvent<'a>>,
    by_name: HashMap<&'a Stream, usize>,
    by_hash: HashMap<u64, usize>,
    /// Ids of stored streams that this commit drops.
    dropped: HashSet<i64>,
    /// Stream id and offset of the events that this commit has removed so far.
    pub(crate) removed: HashSet<(i64, u64)>,
    dedupe_window_ms_max: u64,
    /// This commit has written rows of delayed events.
    pub(crate) delayed: bool,
    /// Whether any id was held by a delayed event when this commit began. Looked up by the first append that brings an
    /// id.
    ids_held: OnceCell<bool>,
}

pub(crate) fn content_bytes(body: &EventBody) -> u64 {
    let key = body.key.as_ref().map_or(0, |key| key.len());
    let headers = body.headers.as_ref().map_or(0, |headers| headers.json().bytes().len());
    (body.payload.bytes().len() + key + headers) as u64
}

impl<'a> CommitStage<'a> {
    pub(crate) fn new(appends: usize, dedupe_window_ms_max: u64) -> CommitStage<'a> {
        CommitStage {
            streams: Vec::new(),
            entries: Vec::with_capacity(appends),
            by_name: HashMap::new(),
            by_hash: HashMap::new(),
            dropped: HashSet::new(),
            removed: HashSet::new(),
            dedupe_window_ms_max,
            delayed: false,
            ids_held: OnceCell::new(),
        }
    }

    /// Returns the stream as this commit sees it so far. A missing or dropped stream begins anew if `create` is set.
    pub(crate) fn staged(&mut self, store: &StoreCore, stream: &'a Stream, create: bool) -> Option<usize> {
        self.staged_or(store, stream, create, || None)
    }

    /// Does the same for a stream that `unsettled` may know better than the index.
    fn staged_or(
        &mut self,
        store: &StoreCore,
        stream: &'a Stream,
        create: bool,
        unsettled: impl FnOnce() -> Option<Staged>,
    ) -> Option<usize> {
        if let Some(last) = self.entries.last().map(|entry| entry.staged) {
            let staged = &self.streams[last];
            if !staged.row.dropped && staged.row.stream == *stream {
                return Some(last);
            }
        }
        if let Some(at) = self.by_name.get(stream).filter(|at| !self.streams[**at].row.dropped) {
            return Some(*at);
        }
        let stored = || {
            let index = store.index();
            let live = index.get(stream).filter(|state| !self.dropped.contains(&state.row.id))?;
            Some(Staged::new(live.row.clone(), live.next, live.last_ts))
        };
        let staged = match unsettled().or_else(stored) {
            Some(staged) => staged,
            None if create => Staged::new(StreamRow::new(0, stream.clone()), 1, 0),
            None => return None,
        };
        self.streams.push(staged);
        self.by_name.insert(stream, self.streams.len() - 1);
        Some(self.streams.len() - 1)
    }

    pub(crate) fn append(
        &mut self,
        store: &StoreCore,
        target: &impl CommitTarget,
        batch: &Batch,
        append: &'a Append,
        ordinal: u32,
    ) -> Attempt<Appended> {
        let topic = &append.stream.topic;
        let hash = append.event.id.as_ref().map(|id| store.hash_key.of_id(topic, id));
        if let (Some(id), Some(hash)) = (&append.event.id, hash) {
            let wanted = Wanted { topic, id, hash, window_ms: append.dedupe_window_ms };
            if let Some(first) = self.taken(store, target, batch.now, &wanted)? {
                return Ok(first);
            }
            self.by_hash.insert(hash, self.entries.len());
        }
        // With `create` this is never `None`; the default avoids a panic in code.
        let unsettled = || target.unsettled_stream(&append.stream);
        let staged_at = self.staged_or(store, &append.stream, true, unsettled).unwrap_or_default();
        let staged = &mut self.streams[staged_at];
        let (offset, ts) = (staged.next, batch.now.0.max(staged.last_ts));
        let id = append.event.id.clone();
        let id = id.unwrap_or_else(|| EventId::mint(Timestamp(ts), batch.nonce, ordinal));
        (staged.next, staged.last_ts) = (offset + 1, ts);
        let appended = Appended {
            partition: append.stream.partition,
            offset: Offset(offset),
            ts: Timestamp(ts),
            id: id.clone(),
            duplicate: false,
            due: None,
        };
        let ordinal = self.entries.len();
        let body = &append.event.body;
        self.entries.push(StagedEvent { ordinal, record: 0, staged: staged_at, offset, ts, id, hash, body });
        Ok(appended)
    }

    /// Returns the answer for a delayed event. If it is no duplicate, its rows are written at once.
    pub(crate) fn delay(
        &mut self,
        store: &StoreCore,
        target: &mut impl CommitTarget,
        now: Timestamp,
        delay: &Delay,
    ) -> Attempt<Appended> {
        let Delay { topic, id, dedupe_window_ms, due, .. } = delay;
        let hash = store.hash_key.of_id(topic, id);
        let wanted = Wanted { topic, id, hash, window_ms: *dedupe_window_ms };
        if let Some(first) = self.taken(store, target, now, &wanted)? {
            return Ok(first);
        }
        let rows = resolve::delay(delay, incarnation_of(target, topic)?);
        rows.iter().try_for_each(|op| target.write(op))?;
        self.delayed = true;
        Ok(resolve::waiting(id, now, *due, false))
    }

    /// Returns whether the id is taken: by a stored event, or by a delayed one that waits.
    pub(crate) fn is_taken(
        &self,
        store: &StoreCore,
        target: &impl CommitTarget,
        now: Timestamp,
        id: &TakenId,
    ) -> Attempt<bool> {
        let TakenId { topic, id, dedupe_window_ms } = id;
        let hash = store.hash_key.of_id(topic, id);
        let wanted = Wanted { topic, id, hash, window_ms: *dedupe_window_ms };
        Ok(self.taken(store, target, now, &wanted)?.is_some())
    }

    fn taken(
        &self,
        store: &StoreCore,
        target: &impl CommitTarget,
        now: Timestamp,
        wanted: &Wanted<'_>,
    ) -> Attempt<Option<Appended>> {
        let window_ms = wanted.window_ms.min(self.dedupe_window_ms_max);
        if window_ms == 0 {
            return Ok(None);
        }
        if let Some(first) = self.duplicate_of(store, target, now.0.saturating_sub(window_ms), wanted)? {
            return Ok(Some(first));
        }
        if !self.delayed && !self.any_id_held(target)? {
            return Ok(None);
        }
        let Some(incarnation) = incarnation_of(target, wanted.topic)? else { return Ok(None) };
        let row = target.row(Space::DueIds, &keys::due_id(wanted.topic, incarnation, wanted.id))?;
        let Some((due, key)) = row.as_deref().and_then(resolve::holder) else { return Ok(None) };
        let waits = match key {
            Some(key) => target.row(Space::Due, key)?.is_some(),
            None => true,
        };
        Ok(waits.then(|| resolve::waiting(wanted.id, now, due, true)))
    }

    /// Looks once per commit whether any delayed event holds an id, instead of once per id.
    fn any_id_held(&self, target: &impl CommitTarget) -> Attempt<bool> {
        if let Some(held) = self.ids_held.get() {
            return Ok(*held);
        }
        let held = target.has_rows(Space::DueIds)?;
        Ok(*self.ids_held.get_or_init(|| held))
    }

    fn duplicate_of(
        &self,
        store: &StoreCore,
        target: &impl CommitTarget,
        since: u64,
        wanted: &Wanted<'_>,
    ) -> Attempt<Option<Appended>> {
        let Wanted { topic, id, hash, .. } = *wanted;
        let first = match self.by_hash.get(&hash).map(|at| &self.entries[*at]) {
            Some(entry) if entry.id == *id && self.streams[entry.staged].row.stream.topic == *topic => {
                let row = &self.streams[entry.staged].row;
                (!row.dropped).then_some((row.stream.partition, entry.offset, entry.ts))
            }
            _ => match target.unsettled_event(hash, topic, id) {
                Some(first) => Some(first),
                None => self.stored(store, target, hash, topic, id)?,
            },
        };
        Ok(first.filter(|(_, _, ts)| *ts >= since).map(|(partition, offset, ts)| {
            let (offset, ts, id) = (Offset(offset), Timestamp(ts), id.clone());
            Appended { partition, offset, ts, id, duplicate: true, due: None }
        }))
    }

    /// Returns the event in the tables that the hash leads to, or what `tombstones.rs` keeps of it, if it really has this
    /// topic and id. An event that cannot be read counts as forgotten: storing an id twice is better than storing nothing
    /// any more.
    fn stored(
        &self,
        store: &StoreCore,
        target: &impl CommitTarget,
        hash: u64,
        topic: &TopicKey,
        id: &EventId,
    ) -> Attempt<Option<(Partition, u64, u64)>> {
        let newer = target.unsettled_ids();
        let Some(seq) = store.dedupe().find(hash, newer) else { return Ok(None) };
        let (lookups, damaged) = (target.lookups(), target.damaged());
        if damaged == Damaged::Refused {
            // A copy answers only with rows that are whole.
            row::check(lookups, seq, seq)?;
            tombstones::check(lookups, seq)?;
        }
        let mut select =
            lookups.prepare_cached("SELECT stream, offset, ts, id FROM events WHERE seq = ?1")?;
        let found = select
            .query_row(params![seq as i64], |row| {
                let same_id = row::read_id(row.get_ref(3)?).flatten().as_ref() == Some(id);
                let (offset, ts) = (row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64);
                Ok((row.get::<_, i64>(0)?, offset, ts, same_id))
            })
            .optional();
        let found = match found {
            Err(error) if SqliteFault::is_damage(&error) && damaged == Damaged::Empty => {
                store.report_damaged_place(lookups, topic, seq)?;
                None
            }
            found => found?,
        };
        let found = match found {
            Some((stream, offset, ts, same_id)) => same_id.then_some((stream, offset, ts)),
            None => match tombstones::find(lookups, seq) {
                Err(fault) if fault.is_damaged_page() && damaged == Damaged::Empty => None,
                left => left?.filter(|left| left.id == *id).map(|left| (left.stream, left.offset, left.ts)),
            },
        };
        let Some((stream, offset, ts)) = found else { return Ok(None) };
        let index = store.index();
        let Some(state) = index.by_id(stream).filter(|state| state.row.stream.topic == *topic) else {
            return Ok(None);
        };
        // A stream that this commit has already dropped counts as dropped.
        let staged = self.streams.iter().find(|staged| staged.row.id == stream);
        let row = staged.map_or(&state.row, |staged| &staged.row);
        Ok((!row.dropped).then_some((row.stream.partition, offset, ts)))
    }

    pub(crate) fn trim(&mut self, store: &StoreCore, stream: &'a Stream, start: u64) {
        let Some(at) = self.staged(store, stream, false) else { return };
        let staged = &mut self.streams[at];
        let start = start.min(staged.next);
        if start > staged.row.start {
            staged.row.start = start;
            staged.row_changed = true;
        }
    }

    /// Notes that events below `compacted_to` may be missing from now on, and returns the row of the stream if it is
    /// stored.
    pub(crate) fn compact(
        &mut self,
        store: &StoreCore,
        stream: &'a Stream,
        compacted_to: u64,
    ) -> Option<&mut StreamRow> {
        let at = self.staged(store, stream, false)?;
        let staged = &mut self.streams[at];
        // Events that this commit appends have no row yet, and are newer than anything that compaction can have read.
        let stored = staged.first;
        staged.row.compacted_to = staged.row.compacted_to.max(compacted_to.min(stored));
        staged.row_changed = true;
        (staged.row.id != 0).then_some(&mut staged.row)
    }

    /// Returns whether this commit drops the stored stream.
    pub(crate) fn drops(&self, id: i64) -> bool {
        self.dropped.contains(&id)
    }

    /// Returns the start that this commit gives to a stored stream, if it has staged that stream.
    pub(crate) fn start_of(&self, id: i64) -> Option<u64> {
        self.streams.iter().find(|staged| staged.row.id == id).map(|staged| staged.row.start)
    }

    pub(crate) fn drop_topic(&mut self, store: &StoreCore, topic: &TopicKey, now: u64) {
        for staged in self.streams.iter_mut().filter(|staged| staged.row.stream.topic == *topic) {
            staged.row.dropped = true;
            staged.row.dropped_at = now;
            staged.row_changed = true;
            self.dropped.insert(staged.row.id);
        }
        let index = store.index();
        for state in index.live().filter(|state| state.row.stream.topic == *topic) {
            if self.dropped.insert(state.row.id) {
                let mut staged = Staged::new(state.row.clone(), state.next, state.last_ts);
                staged.row.dropped = true;
                staged.row.dropped_at = now;
                staged.row_changed = true;
                self.streams.push(staged);
            }
        }
    }
}

/// Returns the incarnation that the topic has inside the transaction.
fn incarnation_of(target: &impl CommitTarget, topic: &TopicKey) -> Attempt<Option<u64>> {
    let row = target.row(Space::Topics, &keys::topic(topic))?;
    Ok(row.and_then(|row| TopicRow::incarnation_of(&row)))
}

impl Staged {
    pub(crate) fn new(row: StreamRow, next: u64, last_ts: u64) -> Staged {
        let start_before = row.start;
        Staged { row, row_changed: false, next, last_ts, first: next, start_before, number: None }
    }
}
