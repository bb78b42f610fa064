//! A server's machine: a folder for its copy, a clock of its own, and a wire to the engine. Handles are quiet: tests say
//! when they follow and keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_conformance::build::{append, append_id, batch, stream};
use millrace_journal::{Journal, JournalReadLimit, MemoryJournal};
use millrace_model::{Batch, Offset, Outcome, Space, Stream};
use millrace_store::{KeyRange, ReadLimit, Store, StoreError};
use millrace_store_journal::record::{self, RecordHead};
use millrace_store_journal::{JournalSettings, JournalStore, Leadership, Manifest, OpenError};
use millrace_store_sqlite::{SqliteCopies, SqliteOptions};
use tempfile::TempDir;

use super::clock::ManualClock;
use super::wire::Wire;

pub(crate) const LEAD_TIMEOUT: u64 = 5_000;
pub(crate) const WHOLE: ReadLimit = ReadLimit { events_max: 1_000_000, bytes_max: usize::MAX };

pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteOptions,
    pub(crate) settings: JournalSettings,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) wire: Arc<Wire>,
}

pub(crate) fn settings() -> JournalSettings {
    JournalSettings {
        lead_timeout_ms: LEAD_TIMEOUT,
        records_kept: 2,
        part_bytes: 4096,
        backoff_ms_max: 1,
        ..JournalSettings::default()
    }
}

impl Machine {
    pub(crate) fn new(journal: &Arc<impl Journal>) -> Machine {
        Machine::wired(Wire::new(journal.clone()))
    }

    pub(crate) fn wired(wire: Wire) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.db");
        let (clock, wire) = (Arc::new(ManualClock::new()), Arc::new(wire));
        Machine { folder, path, options: super::small(), settings: settings(), clock, wire }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut JournalSettings)) -> Machine {
        change(&mut self.settings);
        self
    }

    pub(crate) fn free(self) -> Machine {
        self.with(|settings| settings.leadership = Leadership::Free)
    }

    pub(crate) fn try_open(&self) -> Result<Arc<JournalStore>, OpenError> {
        let copies = Arc::new(SqliteCopies::new(self.path.clone(), self.options.clone()));
        let opened =
            JournalStore::open_quiet(self.wire.clone(), copies, self.settings.clone(), self.clock.clone());
        opened.map(Arc::new)
    }

    pub(crate) fn open(&self) -> Arc<JournalStore> {
        self.try_open().unwrap()
    }

    /// Opens a handle that leads.
    pub(crate) fn lead(&self) -> Arc<JournalStore> {
        let store = self.open();
        assert!(store.try_lead().unwrap());
        store
    }

    /// Returns the names of the files beside the copy that begin with `copy.db.` and this word.
    pub(crate) fn aside(&self, word: &str) -> Vec<String> {
        let prefix = format!("copy.db.{word}");
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_log =
            |name: &str| name.ends_with("-wal") || name.ends_with("-shm") || name.ends_with("-locks");
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with(&prefix) && !is_log(name)).collect();
        names.sort();
        names
    }

    pub(crate) fn is_condemned_as(&self, reason: &str) -> bool {
        std::fs::read_to_string(self.folder.path().join("copy.db.condemned"))
            .is_ok_and(|found| found == reason)
    }
}

/// Ends a handle as a crash does: nothing is given back.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn crash(store: Arc<JournalStore>) {
    store.close();
    assert_eq!(Arc::strong_count(&store), 1, "the copy is still open");
}

pub(crate) fn events() -> Stream {
    stream("events", 0)
}

pub(crate) fn event(text: &str) -> Batch {
    batch(1, vec![append(&events(), text)])
}

pub(crate) fn event_id(id: &str) -> Batch {
    batch(1, vec![append_id(&events(), id, id, 1_000_000)])
}

pub(crate) fn publish(store: &JournalStore, text: &str) -> Result<Offset, StoreError> {
    store.commit(&[event(text)]).map(|outcomes| offset_of(&outcomes))
}

pub(crate) fn offset_of(outcomes: &[Outcome]) -> Offset {
    let [Outcome::Done(done)] = outcomes else { panic!("{outcomes:?}") };
    done.appended[0].offset
}

pub(crate) fn texts(store: &JournalStore) -> Vec<String> {
    let page = store.read(&events(), Offset(1), WHOLE).unwrap();
    page.events.iter().map(|event| event.body.payload.as_str().trim_matches('"').to_owned()).collect()
}

/// Returns everything that a store holds, as text.
pub(crate) fn dump(store: &JournalStore) -> Vec<String> {
    let mut lines = Vec::new();
    for space in Space::ALL {
        let rows = store.scan(space, &KeyRange::all(), usize::MAX).unwrap();
        lines.extend(rows.iter().map(|row| format!("{space:?} {} {:?}", row.key, row.value)));
    }
    let mut streams = store.streams().unwrap();
    streams.sort_by(|one, other| one.stream.cmp(&other.stream));
    for bounds in streams {
        lines.push(format!("{} {} {}", bounds.stream, bounds.start, bounds.next));
        let page = store.read(&bounds.stream, bounds.start, WHOLE).unwrap();
        lines.extend(page.events.iter().map(|event| format!("{event:?}")));
    }
    lines
}

/// Returns the records of a journal, each checked.
pub(crate) fn heads(journal: &dyn Journal) -> Vec<RecordHead> {
    let limit = JournalReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };
    let records = journal.read(1, limit).unwrap();
    records.iter().map(|(_, bytes)| record::decode_head(bytes).unwrap().0).collect()
}

/// Returns what a new machine finds in the journal.
pub(crate) fn folded(journal: &Arc<impl Journal>) -> Vec<String> {
    texts(&Machine::new(journal).free().open())
}

pub(crate) fn manifest_of(journal: &dyn Journal) -> Manifest {
    Manifest::decode(&journal.manifest().unwrap().unwrap().bytes).unwrap()
}

pub(crate) fn memory() -> Arc<MemoryJournal> {
    Arc::new(MemoryJournal::new())
}

pub(crate) fn is_poisoned_by(error: &StoreError, word: &str) -> bool {
    matches!(error, StoreError::Poisoned(cause) if cause.text().contains(word))
}

/// Returns whether a commit was refused, with nothing written, by a handle that has lost its copy and so gives the lead up.
pub(crate) fn is_given_up_for(error: &StoreError, word: &str) -> bool {
    let text = error.to_string();
    matches!(error, StoreError::Deposed(_)) && text.contains("gives the lead up") && text.contains(word)
}

pub(crate) fn meddle(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
}
