//! The store as the copy of a journal: commits go through the journal, and records of others are applied.
//!
//! A commit of plain batches is written to the tables later (`settle.rs`).
//!
//! Position and rows are written in one transaction. A copy may lose its end with the power, because it does not sync;
//! it is never inconsistent, and the journal has what was lost.

use millrace_model::{Batch, Space};
use millrace_store::{
    CommitVia, CopyPosition, FailureCause, FoldError, FoldRecord, Placement, RecordedChange, RecordedEvent,
    StoreError,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::dedupe::hash::HashKey;
use crate::error::{Attempt, SqliteFault};
use crate::rows::{codec, tables};
use crate::store_core::StoreCore;
use crate::writing::commit::{self, Inserted};
use crate::writing::front::FrontCommit;
use crate::writing::stage::{CommitStage, StagedEvent};
use crate::writing::transaction::{Change, Writer};

impl StoreCore {
    pub(crate) fn copy_position(&self) -> Result<Option<CopyPosition>, StoreError> {
        let mut writer = self.writer();
        self.settle_with(&mut writer)?;
        load_position(&writer.conn).map_err(SqliteFault::unreadable)
    }

    pub(crate) fn set_copy_position(&self, position: &CopyPosition) -> Result<(), StoreError> {
        let mut writer = self.writer();
        self.settle_with(&mut writer)?;
        let saved = self.transact_copy(&mut writer, |writer| {
            Ok((save_position(&writer.conn, position)?, Change::default()))
        })?;
        saved.map_err(SqliteFault::unreadable)
    }

    /// See `Foldable::commit_via`.
    pub(crate) fn commit_copy(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError> {
        commit::refuse_too_large(batches)?;
        let front = self.front.lock();
        if let Some(reason) = self.locks.poisoned() {
            return Err(StoreError::Poisoned(reason.into()));
        }
        if !self.may_defer(batches) {
            self.settle_copy()?;
            return self.commit_tables_via(batches, place);
        }
        if self.must_settle_first() {
            self.settle_copy()?;
        }
        match self.commit_front(&front, batches, place) {
            Ok(FrontCommit::Committed(outcomes)) => Ok(CommitVia::Committed { outcomes, copied: Ok(()) }),
            Ok(FrontCommit::NotPlaced) => Ok(CommitVia::NotPlaced),
            Err(fault) => {
                self.note_damage(&fault);
                Err(fault.unreadable())
            }
        }
    }

    /// Settles before a commit that needs it. A copy that cannot follow the journal must not lead.
    fn settle_copy(&self) -> Result<(), StoreError> {
        self.settle().map_err(|error| match error {
            StoreError::NoSpace(cause) => {
                let text = format!("the local copy cannot follow the journal: {}", cause.text());
                StoreError::Poisoned(FailureCause::new(text, StoreError::NoSpace(cause)))
            }
            error => error,
        })
    }

    /// Commits inside a transaction on the tables, which place the changes before it ends.
    fn commit_tables_via(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError> {
        let mut writer = self.writer();
        writer.recording = Some(Vec::new());
        let mut confirmed = None;
        let written = self.transact_copy(&mut writer, |writer| {
            let ((outcomes, inserted), change) = self.write_batches(writer, batches)?;
            match place(writer.recording.as_deref().unwrap_or_default()) {
                Placement::Placed(position) => {
                    // From here on the commit has happened, whatever becomes of the copy.
                    confirmed = Some(outcomes);
                    save_position(&writer.conn, &position)?;
                    Ok((inserted, change))
                }
                Placement::NothingToPlace => {
                    confirmed = Some(outcomes);
                    Err(SqliteFault::NotPlaced)
                }
                Placement::NotPlaced => Err(SqliteFault::NotPlaced),
            }
        });
        writer.recording = None;
        let copied = match written {
            Ok(Ok(inserted)) => self.after_commit(&mut writer, inserted),
            Ok(Err(SqliteFault::NotPlaced)) => Ok(()),
            Ok(Err(fault)) => Err(fault.unreadable()),
            Err(error) => Err(error),
        };
        match (confirmed, copied) {
            (Some(outcomes), copied) => Ok(CommitVia::Committed { outcomes, copied }),
            (None, Ok(())) => Ok(CommitVia::NotPlaced),
            (None, Err(error)) => Err(error),
        }
    }

    pub(crate) fn apply_records(&self, records: &[FoldRecord]) -> Result<(), FoldError> {
        let Some(last) = records.last() else { return Ok(()) };
        let _front = self.front.lock();
        let mut writer = self.writer();
        self.settle_with(&mut writer)?;
        let applied = self.transact_copy(&mut writer, |writer| {
            let (inserted, change) = self.fold_records(writer, records)?;
            save_position(&writer.conn, &last.position)?;
            Ok((inserted, change))
        })?;
        match applied {
            Ok(inserted) => Ok(self.after_commit(&mut writer, inserted)?),
            Err(SqliteFault::Mismatch(text)) => Err(FoldError::Mismatch(text)),
            Err(fault) => Err(fault.unreadable().into()),
        }
    }

    /// Remembers that a copy is damaged: it is made anew. A store that is no copy goes on with what is left.
    pub(crate) fn note_damage(&self, fault: &SqliteFault) {
        if self.options.is_copy && fault.is_damage_of_copy() {
            let _ = self.damage.set(fault.to_string());
        }
    }

    pub(crate) fn fold_records(
        &self,
        writer: &mut Writer,
        records: &[FoldRecord],
    ) -> Attempt<(Inserted, Change)> {
        self.dedupe_catch_up(writer)?;
        let changes = || records.iter().flat_map(|record| &record.changes);
        let events = changes().map(RecordedChange::events).sum();
        let mut stage = CommitStage::new(events, self.options.dedupe_window_ms_max);
        for (at, record) in records.iter().enumerate() {
            for change in &record.changes {
                self.fold_change(writer, &mut stage, at, change)?;
            }
        }
        self.insert(writer, stage)
    }

    fn fold_change<'a>(
        &self,
        writer: &mut Writer,
        stage: &mut CommitStage<'a>,
        record: usize,
        change: &'a RecordedChange,
    ) -> Attempt<()> {
        match change {
            RecordedChange::Put { space, key, value } => {
                tables::put(&writer.conn, *space, key, value)?;
                writer.wal_bytes += (key.len() + value.len()) as u64;
                stage.delayed |= *space == Space::Due;
            }
            RecordedChange::Delete { space, key } => {
                tables::delete(&writer.conn, *space, key)?;
            }
            RecordedChange::Remove { stream, number, offsets, compacted_to } => {
                stage.numbered(self, stream, *number)?;
                self.remove(writer, stage, stream, offsets, compacted_to.0)?;
            }
            RecordedChange::Drop { topic, at } => stage.drop_topic(self, topic, at.0),
            RecordedChange::Append { stream, number, events } => {
                let staged = stage.numbered_or_new(self, stream, *number)?;
                for event in events {
                    stage.fold_event(self.hash_key, staged, record, event)?;
                }
            }
            RecordedChange::Start { stream, number, start } => {
                stage.numbered(self, stream, *number)?;
                stage.trim(self, stream, start.0);
            }
        }
        Ok(())
    }
}

impl<'a> CommitStage<'a> {
    /// Returns a stream that this copy has, with the number that the record gives it.
    fn numbered(
        &mut self,
        store: &StoreCore,
        stream: &'a millrace_model::Stream,
        number: u64,
    ) -> Attempt<usize> {
        let found = self.staged(store, stream, false);
        let Some(at) = found else {
            return Err(SqliteFault::Mismatch(format!("{stream} with number {number} is missing here")));
        };
        self.check_number(at, number)?;
        Ok(at)
    }

    fn numbered_or_new(
        &mut self,
        store: &StoreCore,
        stream: &'a millrace_model::Stream,
        number: u64,
    ) -> Attempt<usize> {
        // With `create` this is never `None`; the default avoids a panic in code.
        let at = self.staged(store, stream, true).unwrap_or_default();
        let staged = &mut self.streams[at];
        if staged.row.id == 0 && staged.number.is_none() {
            staged.number = Some(number as i64);
        }
        self.check_number(at, number)?;
        Ok(at)
    }

    fn check_number(&self, at: usize, number: u64) -> Attempt<()> {
        let staged = &self.streams[at];
        let here = staged.number.unwrap_or(staged.row.id) as u64;
        if here == number {
            return Ok(());
        }
        let stream = &staged.row.stream;
        Err(SqliteFault::Mismatch(format!("{stream} has number {here} here and {number} there")))
    }

    fn fold_event(
        &mut self,
        key: HashKey,
        at: usize,
        record: usize,
        event: &'a RecordedEvent,
    ) -> Attempt<()> {
        let ordinal = self.entries.len();
        let staged = &mut self.streams[at];
        let (offset, ts) = (event.offset.0, event.ts.0);
        if staged.next != offset {
            return Err(SqliteFault::Mismatch(format!(
                "{} goes on at {} here and at {offset} there",
                staged.row.stream, staged.next
            )));
        }
        (staged.next, staged.last_ts) = (offset + 1, ts);
        let hash = event.is_brought.then(|| key.of_id(&staged.row.stream.topic, &event.id));
        let (id, body) = (event.id.clone(), &event.body);
        self.entries.push(StagedEvent { ordinal, record, staged: at, offset, ts, id, hash, body });
        Ok(())
    }
}

const POSITION: &str = "journal";

pub(crate) fn load_position(conn: &Connection) -> Attempt<Option<CopyPosition>> {
    let mut select = conn.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    let stored: Option<Vec<u8>> = select.query_row([POSITION], |row| row.get(0)).optional()?;
    let damaged = |_| SqliteFault::DamagedRow("meta", POSITION.to_owned());
    stored.map(|bytes| codec::decode_position(&bytes).map_err(damaged)).transpose()
}

pub(crate) fn save_position(conn: &Connection, position: &CopyPosition) -> Attempt<()> {
    conn.prepare_cached(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?
    .execute(params![POSITION, codec::encode_position(position)])?;
    Ok(())
}
