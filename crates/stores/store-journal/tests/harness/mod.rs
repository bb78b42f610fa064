//! Handles on a journal in memory, with copies in SQLite.

#![allow(clippy::unwrap_used, dead_code)]

pub(crate) mod clock;
pub(crate) mod machine;
pub(crate) mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_conformance::{Follows, Subject, Twins};
use millrace_journal::Journal;
use millrace_model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, KeyRange, Maintained, Page, ReadLimit, Retention, Row, Store, StoreError,
    StreamBounds,
};
use millrace_store_journal::{JournalSettings, JournalStore, Leadership};
use millrace_store_sqlite::{SqliteCopies, SqliteOptions};

/// A handle that takes its turn with others, without a lead.
pub(crate) struct Handle {
    pub(crate) store: JournalStore,
}

impl Follows for Handle {
    fn follow(&self) {
        self.store.follow().unwrap();
    }
}

impl Handle {
    /// A quiet handle follows when it is told to: here before every read.
    fn followed(&self) -> &JournalStore {
        self.store.follow().unwrap();
        &self.store
    }
}

impl Store for Handle {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.store.commit(batches)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.followed().read(stream, from, limit)
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.followed().seek(stream, ts)
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.followed().retention_start(stream, rule)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.followed().scan(space, range, rows_max)
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.followed().streams()
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.followed().watch(after, commits_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.store.claim_serving()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.store.is_served_elsewhere()
    }
}

pub(crate) fn free_settings() -> JournalSettings {
    JournalSettings { leadership: Leadership::Free, backoff_ms_max: 1, ..JournalSettings::default() }
}

pub(crate) fn open_copy(
    journal: Arc<dyn Journal>,
    path: &Path,
    options: &SqliteOptions,
    settings: JournalSettings,
) -> JournalStore {
    let copies = Arc::new(SqliteCopies::new(path.to_owned(), options.clone()));
    // Pauses between attempts cost nothing with this clock.
    JournalStore::open_quiet(journal, copies, settings, Arc::new(clock::ManualClock::new())).unwrap()
}

/// `journal` is called once for every handle, so that each may have faults of its own.
pub(crate) fn subject(
    options: SqliteOptions,
    journal: impl Fn() -> Arc<dyn Journal> + Clone + 'static,
) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("copy.db");
    let beside_path = folder.path().join("beside.db");
    let open = {
        let (options, journal) = (options.clone(), journal.clone());
        move || Box::new(Handle { store: open_copy(journal(), &path, &options, free_settings()) })
    };
    let subject = Subject::new(open(), move |store| {
        let _keep = &folder;
        drop(store);
        open()
    });
    subject.open_beside(move || {
        Box::new(Handle { store: open_copy(journal(), &beside_path, &options, free_settings()) })
    })
}

pub(crate) fn twins(
    options: SqliteOptions,
    journal: impl Fn() -> Arc<dyn Journal> + Clone + 'static,
) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one.db", "two.db"].map(|name| folder.path().join(name));
    let beside_path = folder.path().join("three.db");
    let open = {
        let (options, journal) = (options.clone(), journal.clone());
        move || {
            let [one, two] = paths.each_ref().map(|path| {
                Box::new(Handle { store: open_copy(journal(), path, &options, free_settings()) })
            });
            Box::new(Twins::new(one, two))
        }
    };
    let subject = Subject::new(open(), move |store| {
        let _keep = &folder;
        drop(store);
        open()
    });
    subject.open_beside(move || {
        Box::new(Handle { store: open_copy(journal(), &beside_path, &options, free_settings()) })
    })
}

pub(crate) fn small() -> SqliteOptions {
    SqliteOptions {
        fold_events: 8,
        loc_events_max: 5,
        commits_kept: 64,
        wal_bytes: 64 << 10,
        readers_max: 1,
        ..SqliteOptions::default()
    }
}
