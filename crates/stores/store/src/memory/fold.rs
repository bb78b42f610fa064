//! The store in memory as the copy of a journal: records what a commit came to, and applies records of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::{BATCH_BYTES_MAX, Batch, Event, Offset, Space, Stream, TopicKey, keys, lane_of};

use super::feed::StreamChanges;
use super::log::StreamLog;
use super::{MemoryState, MemoryStore};
use crate::error::StoreError;
use crate::fold::{
    CommitVia, CopyPosition, FoldError, FoldRecord, Foldable, Placement, RecordedChange, RecordedEvent,
};
use crate::port::StreamRun;

/// The changes of the commit under way.
#[derive(Clone, Default)]
pub(super) struct Recording {
    /// Rows, removals and drops in the order they were decided.
    rows: Vec<RecordedChange>,
    appends: Vec<(Stream, u64, Vec<RecordedEvent>)>,
    starts: BTreeMap<Stream, (u64, Offset)>,
}

impl Recording {
    pub(super) fn add(&mut self, change: RecordedChange) {
        self.rows.push(change);
    }

    pub(super) fn append(&mut self, number: u64, event: &Event, is_brought: bool) {
        let recorded = RecordedEvent {
            offset: event.offset,
            ts: event.ts,
            id: event.id.clone(),
            is_brought,
            body: Arc::clone(&event.body),
        };
        match self.appends.iter_mut().find(|(_, found, _)| *found == number) {
            Some((_, _, events)) => events.push(recorded),
            None => self.appends.push((event.stream.clone(), number, vec![recorded])),
        }
    }

    pub(super) fn start(&mut self, stream: &Stream, number: u64, start: Offset) {
        self.starts.insert(stream.clone(), (number, start));
    }

    /// Forgets the events of a topic that is being dropped: the commit leaves nothing of them.
    pub(super) fn forget_topic(&mut self, topic: &TopicKey) {
        self.appends.retain(|(stream, _, _)| stream.topic != *topic);
        self.starts.retain(|stream, _| stream.topic != *topic);
    }

    fn into_changes(self) -> Vec<RecordedChange> {
        let Recording { mut rows, appends, starts } = self;
        rows.extend(appends.into_iter().map(|(stream, number, events)| RecordedChange::Append {
            stream,
            number,
            events,
        }));
        rows.extend(starts.into_iter().map(|(stream, (number, start))| RecordedChange::Start {
            stream,
            number,
            start,
        }));
        rows
    }
}

impl Foldable for MemoryStore {
    fn position(&self) -> Result<Option<CopyPosition>, StoreError> {
        Ok(self.state.lock().position)
    }

    fn set_position(&self, position: &CopyPosition) -> Result<(), StoreError> {
        self.state.lock().position = Some(*position);
        Ok(())
    }

    /// Works on a clone of everything, which is put in place when the changes are in the journal.
    fn commit_via(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError> {
        super::refuse_too_large(batches, BATCH_BYTES_MAX)?;
        let mut state = self.state.lock().clone();
        state.recording = Some(Recording::default());
        let created_before = state.streams_created;
        let outcomes = state.commit(batches);
        let recording = state.recording.take().unwrap_or_default();
        // Others apply the starts last: an event that was trimmed and then finished in one commit leaves no row there.
        for (stream, (_, start)) in &recording.starts {
            state.forget_finished(stream, *start);
        }
        let changes = recording.into_changes();
        // A stream that this commit both made and dropped leaves no trace in the journal, so its number stays free.
        state.streams_created = changes.iter().filter_map(number_of).fold(created_before, u64::max);
        match place(&changes) {
            Placement::Placed(position) => {
                state.position = Some(position);
                *self.state.lock() = state;
            }
            Placement::NothingToPlace => {}
            Placement::NotPlaced => return Ok(CommitVia::NotPlaced),
        }
        Ok(CommitVia::Committed { outcomes, copied: Ok(()) })
    }

    fn apply(&self, records: &[FoldRecord]) -> Result<(), FoldError> {
        let mut state = self.state.lock().clone();
        state.fold(records)?;
        *self.state.lock() = state;
        Ok(())
    }
}

fn number_of(change: &RecordedChange) -> Option<u64> {
    match change {
        RecordedChange::Append { number, .. } => Some(*number),
        _ => None,
    }
}

impl MemoryState {
    fn fold(&mut self, records: &[FoldRecord]) -> Result<(), FoldError> {
        let (mut runs, mut trimmed, mut delayed) = (Vec::new(), BTreeSet::new(), false);
        let mut streams_changed = false;
        for record in records {
            for change in &record.changes {
                delayed |= matches!(change, RecordedChange::Put { space: Space::Due, .. });
                streams_changed |=
                    !matches!(change, RecordedChange::Put { .. } | RecordedChange::Delete { .. });
                self.fold_change(change, &mut runs, &mut trimmed)?;
            }
            self.position = Some(record.position);
        }
        if streams_changed || delayed {
            let trimmed =
                trimmed.iter().filter_map(|stream| Some(self.logs.get(stream)?.bounds(stream))).collect();
            self.feed.push(StreamChanges { runs, trimmed, delayed });
        }
        Ok(())
    }

    fn fold_change(
        &mut self,
        change: &RecordedChange,
        runs: &mut Vec<StreamRun>,
        trimmed: &mut BTreeSet<Stream>,
    ) -> Result<(), FoldError> {
        match change {
            RecordedChange::Put { space, key, value } => self.tables.put(*space, key, value.clone()),
            RecordedChange::Delete { space, key } => self.tables.remove(*space, key),
            RecordedChange::Remove { stream, number, offsets, compacted_to } => {
                self.log_numbered(stream, *number)?;
                self.remove(stream, offsets, *compacted_to, &[]);
            }
            RecordedChange::Drop { topic, .. } => {
                self.forget_dropped(topic);
                runs.retain(|run| run.stream.topic != *topic);
            }
            RecordedChange::Append { stream, number, events } => {
                self.fold_events(stream, *number, events, runs)?;
            }
            RecordedChange::Start { stream, number, start } => {
                self.log_numbered(stream, *number)?;
                self.trim(stream, *start);
                trimmed.insert(stream.clone());
            }
        }
        Ok(())
    }

    fn fold_events(
        &mut self,
        stream: &Stream,
        number: u64,
        events: &[RecordedEvent],
        runs: &mut Vec<StreamRun>,
    ) -> Result<(), FoldError> {
        if !self.logs.contains_key(stream) && number > self.streams_created {
            self.streams_created = number;
            self.logs.insert(stream.clone(), StreamLog::new(number));
        }
        for recorded in events {
            let log = self.log_numbered(stream, number)?;
            if log.next() != recorded.offset {
                let (next, offset) = (log.next(), recorded.offset);
                return Err(FoldError::Mismatch(format!(
                    "{stream} goes on at {next} here and at {offset} there"
                )));
            }
            let RecordedEvent { offset, ts, ref id, is_brought, ref body } = *recorded;
            log.push(Arc::new(Event {
                stream: stream.clone(),
                offset,
                ts,
                id: id.clone(),
                body: Arc::clone(body),
            }));
            if is_brought {
                self.ids.remember(&stream.topic, id, (stream.partition, offset, ts));
            }
            if let Some(lane) = lane_of(body.priority) {
                let key = keys::off_priority(stream, number, lane, offset);
                self.tables.put(Space::OffPriority, &key, ts.0.to_string().into());
            }
            super::feed::extend(runs, stream, offset);
        }
        Ok(())
    }

    fn log_numbered(&mut self, stream: &Stream, number: u64) -> Result<&mut StreamLog, FoldError> {
        match self.logs.get_mut(stream) {
            Some(log) if log.incarnation() == number => Ok(log),
            Some(log) => Err(FoldError::Mismatch(format!(
                "{stream} has number {} here and {number} there",
                log.incarnation()
            ))),
            None => Err(FoldError::Mismatch(format!("{stream} with number {number} is missing here"))),
        }
    }
}
