//! The only way in which a transaction is written: write lock, sync level, BEGIN, commits of others, the work, COMMIT,
//! publication.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use millrace_model::Durability;
use millrace_store::{FailureCause, RecordedChange, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, params};

use crate::error::{Attempt, SqliteFault};
use crate::opening::load;
use crate::reading::index::{StoredRun, StreamRow};
use crate::rows::codec::{self, CommitSummary};
use crate::rows::schema::{self, MIGRATIONS};
use crate::rows::tables::Damaged;
use crate::store_core::StoreCore;
use crate::upkeep::fold::FoldJob;
use crate::writing::progress::WriteStep;
use crate::writing::stage::StagedEvent;

/// The data that only the writing thread uses.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Reads the already committed events that a commit needs: damage met on this connection does not end the
    /// transaction. Declared before `conn`, which must be the last one closed.
    pub(crate) lookups: Connection,
    pub(crate) conn: Connection,
    /// The current setting of `PRAGMA synchronous`.
    level: Option<Durability>,
    pub(crate) fold: Option<FoldJob>,
    /// Every event up to this commit has been folded.
    pub(crate) prune_through: u64,
    pub(crate) pruned_through: u64,
    /// Ids of deleted events may have become unnecessary (`tombstones.rs`): set by every fold, and once when the store is
    /// opened.
    pub(crate) forgets_tombstones: bool,
    /// Roughly how much this handle has written to the WAL since it was last emptied.
    pub(crate) wal_bytes: u64,
    pub(crate) scratch: Vec<u8>,
    /// For each dropped stream, the key at which deleting the rows about its events continues.
    pub(crate) purging: HashMap<i64, String>,
    /// Collects the changes of a commit that goes through a journal.
    pub(crate) recording: Option<Vec<RecordedChange>>,
    /// How this store treats damage that a commit meets. A copy of a journal refuses to decide anything by it.
    pub(crate) damaged: Damaged,
}

/// The changes that a transaction made to streams and delayed events, for its row in `commits` and for the index.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) record: CommitSummary,
    pub(crate) rows: Vec<StreamRow>,
}

impl Change {
    /// Adds a row of `streams` that was written in this transaction.
    pub(crate) fn touch(&mut self, row: StreamRow) {
        self.record.touched.push(row.id);
        self.rows.push(row);
    }

    /// Adds an event behind the last one. Events of one stream at consecutive seqs are one run.
    pub(crate) fn add(&mut self, stream: i64, seq: u64, event: &StagedEvent<'_>, bytes: u64) {
        let (offset, ts, brought) = (event.offset, event.ts, u64::from(event.hash.is_some()));
        match self.record.runs.last_mut() {
            Some((last, run)) if *last == stream && run.end() == offset => {
                run.count += 1;
                run.bytes += bytes;
                run.brought += brought;
                run.last_ts = ts;
            }
            _ => {
                let run = StoredRun { offset, seq, count: 1, bytes, brought, first_ts: ts, last_ts: ts };
                self.record.runs.push((stream, run));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.record.runs.is_empty() && self.record.touched.is_empty() && !self.record.delayed
    }
}

impl Writer {
    pub(crate) fn new(conn: Connection, lookups: Connection, damaged: Damaged) -> Writer {
        Writer {
            lookups,
            conn,
            level: None,
            fold: None,
            prune_through: 0,
            pruned_through: 0,
            forgets_tombstones: true,
            wal_bytes: 0,
            scratch: Vec::new(),
            purging: HashMap::new(),
            recording: None,
            damaged,
        }
    }

    /// Sets the sync level of the following transactions; SQLite ignores this inside a transaction.
    pub(crate) fn sync_level(&mut self, level: Durability) -> Attempt<()> {
        if self.level != Some(level) {
            let value = match level {
                // The disk of this machine is all that this store has.
                Durability::Fsync | Durability::Replicated => "FULL",
                // Never OFF: the header of a WAL that starts over would not be synced either, and after a power failure
                // older frames could be replayed over newer pages, those of synced commits among them.
                Durability::Os | Durability::Memory => "NORMAL",
            };
            self.conn.pragma_update(None, "synchronous", value)?;
            self.level = Some(level);
        }
        Ok(())
    }

    /// Keeps the closing connection from copying the WAL into the database: frames that failed to sync must not get
    /// there.
    pub(crate) fn leave_the_wal(&self) {
        // This cannot fail for a setting that this SQLite knows.
        let _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Forgets what was noted for a transaction that was rolled back.
    fn rolled_back(&mut self) {
        self.purging.clear();
    }

    pub(crate) fn run(&self, sql: &str) -> Attempt<()> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Why a transaction did not happen.
enum Stopped {
    /// The store has this schema version, which is not the one this build writes. Nothing was written.
    Outdated(usize),
    Now(SqliteFault),
    /// The work ended early and was rolled back, so nothing was written.
    RolledBack(SqliteFault),
}

/// Selects the faults that end a transaction without poisoning the store, because nothing was written.
type EndsHarmlessly = fn(&SqliteFault) -> bool;

fn outdated(found: usize) -> StoreError {
    StoreError::Outdated { found, known: MIGRATIONS.len() }
}

impl<E: Into<SqliteFault>> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped::Now(error.into())
    }
}

impl StoreCore {
    /// Runs `work` as one transaction. A failure poisons the store, unless it is known that nothing was written.
    pub(crate) fn transact<T>(
        &self,
        writer: &mut Writer,
        level: Durability,
        work: impl FnOnce(&mut Writer) -> Attempt<(T, Change)>,
    ) -> Result<T, StoreError> {
        match self.transact_unless_damaged(writer, level, work)? {
            Ok(done) => Ok(done),
            Err(damaged) => Err(self.poison(writer, damaged)),
        }
    }

    /// Like `transact` for a copy of a journal, but a fault that ends the copying ([`SqliteFault::ends_copying`]) only
    /// rolls the work back: the inner error.
    pub(crate) fn transact_copy<T>(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&mut Writer) -> Attempt<(T, Change)>,
    ) -> Result<Attempt<T>, StoreError> {
        self.transact_until(writer, Durability::Os, SqliteFault::ends_copying, work)
    }

    /// Like `transact`, but a damaged page that `work` meets only rolls the work back: the inner error.
    pub(crate) fn transact_unless_damaged<T>(
        &self,
        writer: &mut Writer,
        level: Durability,
        work: impl FnOnce(&mut Writer) -> Attempt<(T, Change)>,
    ) -> Result<Attempt<T>, StoreError> {
        self.transact_until(writer, level, SqliteFault::is_damaged_page, work)
    }

    fn transact_until<T>(
        &self,
        writer: &mut Writer,
        level: Durability,
        ends_harmlessly: EndsHarmlessly,
        work: impl FnOnce(&mut Writer) -> Attempt<(T, Change)>,
    ) -> Result<Attempt<T>, StoreError> {
        let _working = self.progress.begin(WriteStep::WriteLock);
        // Without the write lock the transaction has not begun.
        let write_lock =
            self.locks.write_lock().map_err(|error| StoreError::Busy(FailureCause::of(error)))?;
        // Checked only now: the previous writer may have failed while this one waited.
        if let Some(reason) = self.locks.poisoned() {
            return Err(StoreError::Poisoned(reason.into()));
        }
        if self.suspended.load(Relaxed) {
            return Err(StoreError::Busy("its files have lost their names".into()));
        }
        // A failure is handled before the write lock is released: nobody writes between the failure and the flag.
        match self.with_write_lock(writer, level, ends_harmlessly, work) {
            Ok((done, is_news)) => {
                let listeners = write_lock.listeners;
                drop(write_lock);
                if is_news {
                    self.locks.news.tell(listeners);
                }
                Ok(Ok(done))
            }
            Err(Stopped::RolledBack(fault)) => Ok(Err(fault)),
            Err(Stopped::Outdated(found)) => Err(outdated(found)),
            Err(Stopped::Now(fault)) => Err(self.failed(writer, fault)),
        }
    }

    /// Also returns whether the transaction changed what `Store::watch` reports.
    fn with_write_lock<T>(
        &self,
        writer: &mut Writer,
        level: Durability,
        ends_harmlessly: EndsHarmlessly,
        work: impl FnOnce(&mut Writer) -> Attempt<(T, Change)>,
    ) -> Result<(T, bool), Stopped> {
        self.progress.set(WriteStep::FileLock);
        writer.sync_level(level)?;
        writer.run("BEGIN IMMEDIATE")?;
        let found = schema::version_inside(&writer.conn)?;
        if found != MIGRATIONS.len() {
            writer.run("ROLLBACK")?;
            return Err(Stopped::Outdated(found));
        }
        self.progress.set(WriteStep::Work);
        if load::last_commit(&writer.conn)? != self.index().last {
            self.catch_up(&writer.conn)?;
        }
        let (done, change) = match work(writer) {
            Err(fault) if ends_harmlessly(&fault) => {
                writer.run("ROLLBACK")?;
                writer.rolled_back();
                return Err(Stopped::RolledBack(fault));
            }
            worked => worked?,
        };
        let c = self.index().last + 1;
        let is_news = !change.is_empty();
        if is_news {
            self.record(writer, c, &change)?;
        }
        self.progress.set(WriteStep::Commit);
        writer.run("COMMIT")?;
        if is_news {
            self.index_mut().apply(c, &change.record, change.rows);
        }
        Ok((done, is_news))
    }

    /// Returns what a failed transaction means for the store. Must be called with the write lock held.
    fn failed(&self, writer: &mut Writer, fault: SqliteFault) -> StoreError {
        let error = match fault.left_nothing() {
            Ok(error) => error,
            Err(fault) => return self.poison(writer, fault),
        };
        // SQLite has rolled back on its own after some of these errors.
        if !writer.conn.is_autocommit()
            && let Err(fault) = writer.run("ROLLBACK")
        {
            return self.poison(writer, fault);
        }
        writer.rolled_back();
        if matches!(error, StoreError::NoSpace(_)) {
            // Checkpointing makes room: the log starts over and reuses the space that it has.
            writer.wal_bytes = writer.wal_bytes.max(self.options.wal_bytes);
        }
        error
    }

    fn record(&self, writer: &mut Writer, c: u64, change: &Change) -> Attempt<()> {
        let seq = self.index().next_seq;
        let runs = codec::encode_record(c, seq, &change.record);
        writer.wal_bytes += runs.len() as u64;
        writer
            .conn
            .prepare_cached("INSERT INTO commits (c, seq, runs) VALUES (?1, ?2, ?3)")?
            .execute(params![c as i64, seq as i64, runs])?;
        Ok(())
    }

    pub(crate) fn poison(&self, writer: &mut Writer, fault: SqliteFault) -> StoreError {
        let reason = self.locks.raise(&fault.to_string()).to_owned();
        writer.leave_the_wal();
        if !writer.conn.is_autocommit() {
            // SQLite may have rolled back on its own; what matters is that nothing more is written.
            let _ = writer.run("ROLLBACK");
        }
        fault.poisoned(&reason)
    }
}
