//! Work on stores of any kind that goes through a local file: moving a store to another engine, checking a shared one,
//! looking at its journal.
//!
//! A shared store is brought into a file of its own first, by its snapshot and its journal, without taking the lead.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_model::{Offset, Space};
use millrace_store::{FailureCause, KeyRange, ReadLimit, Store, StoreError};
use millrace_store_journal::{JournalSettings, JournalStore, SnapshotMade, SystemEngineClock, import};
use millrace_store_sqlite::{Existing, SqliteCopies, SqliteStore, backup};

use crate::offline::OfflineError;
use crate::open::OpenError;
use crate::options::StoreOptions;
use crate::shared::{open_journal, settings_for};
use crate::url::{SharedUrl, StoreUrl};

/// How much is compared at once.
const PAGE: ReadLimit = ReadLimit { events_max: 1_000, bytes_max: 8 << 20 };
const ROWS: usize = 1_000;

/// The amounts that a move has copied and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub events: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// A shared store as its engine shows it.
#[derive(Clone, Debug)]
pub struct SharedInfo {
    pub engine: String,
    pub is_replicated: bool,
    pub remarks: Vec<String>,
    pub store_id: u128,
    /// The number of the newest record.
    pub head: u64,
    pub term: u64,
    pub is_led: bool,
    pub leader_url: Option<String>,
    /// Records behind the newest snapshot.
    pub records_since_snapshot: u64,
}

/// Copies everything from one store to another that does not exist yet, and compares them event by event and row by
/// row. The source may be in use: the copy is of one moment. `progress` is told the steps, and how many events were
/// compared.
pub fn move_store(
    from: &StoreUrl,
    to: &StoreUrl,
    options: &StoreOptions,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Moved, OfflineError> {
    refuse_existing(to)?;
    let work = WorkFolder::new(options)?;
    progress("reading the source", 0);
    let file = work.path("source.db");
    bring_to_file(from, &file, options)?;
    progress("writing the target", 0);
    let bytes = match to {
        StoreUrl::Memory => return Err(OfflineError::NoFile(to.clone())),
        StoreUrl::Sqlite(path) => backup(&file, path, Existing::Keep)?.bytes,
        StoreUrl::Shared(url) => send(url, &file, options)?,
    };
    progress("comparing", 0);
    let target = work.path("target.db");
    bring_to_file(to, &target, options)?;
    let (one, other) = (open_file(&file, options)?, open_file(&target, options)?);
    let mut moved = compare(&one, &other, progress)?;
    moved.bytes = bytes;
    Ok(moved)
}

/// Brings a store into a SQLite file: a backup of a file, or the snapshot and the journal of a shared store.
pub fn bring_to_file(url: &StoreUrl, file: &Path, options: &StoreOptions) -> Result<(), OfflineError> {
    match url {
        StoreUrl::Memory => Err(OfflineError::NoFile(url.clone())),
        StoreUrl::Sqlite(path) => {
            backup(path, file, Existing::Keep)?;
            Ok(())
        }
        StoreUrl::Shared(url) => {
            let copy = file.with_extension("copy");
            let store = open_apart(url, &copy, options)?;
            store.follow().map_err(OpenError::from)?;
            drop(store);
            // The copy is closed, so its backup is the whole of it, in one file.
            backup(&copy, file, Existing::Keep)?;
            Ok(())
        }
    }
}

/// Returns what an engine holds, without changing it.
pub fn shared_info(url: &SharedUrl, options: &StoreOptions) -> Result<SharedInfo, OfflineError> {
    let work = WorkFolder::new(options)?;
    let store = open_apart(url, &work.path("info.db"), options)?;
    let (status, fitness) = (store.status(), store.fitness().clone());
    Ok(SharedInfo {
        engine: fitness.engine,
        is_replicated: fitness.is_replicated,
        remarks: fitness.remarks,
        store_id: status.position.store_id,
        head: status.position.n,
        term: status.term,
        is_led: status.is_led,
        leader_url: status.leader_url,
        records_since_snapshot: status.records_since_snapshot,
    })
}

/// Makes a snapshot of a shared store beside its servers.
pub fn make_snapshot(url: &SharedUrl, options: &StoreOptions) -> Result<SnapshotMade, OfflineError> {
    let work = WorkFolder::new(options)?;
    let store = open_apart(url, &work.path("snapshot.db"), options)?;
    store.snapshot().map_err(|error| OfflineError::Failed(error.into()))
}

/// Opens a handle on a shared store that only follows, with a copy of its own.
fn open_apart(url: &SharedUrl, copy: &Path, options: &StoreOptions) -> Result<JournalStore, OfflineError> {
    let journal = open_journal(url)?;
    // A command reports an engine that is away instead of waiting for it.
    let settings =
        JournalSettings { store_wait_ms: Some(0), dedupe_ids_max: None, ..settings_for(url, options) };
    let copies = Arc::new(SqliteCopies::new(copy.to_owned(), options.for_sqlite()));
    if journal.manifest().ok().flatten().is_none() {
        let _ = journal.check_existing().map_err(|error| OfflineError::Unreachable(error.into()))?;
        if journal.manifest().map_err(|error| OfflineError::Unreachable(error.into()))?.is_none() {
            return Err(OfflineError::Unreachable(format!("{url} holds no store").into()));
        }
    }
    let opened = JournalStore::open_quiet(journal, copies, settings, Arc::new(SystemEngineClock));
    Ok(opened.map_err(OpenError::from)?)
}

fn send(url: &SharedUrl, file: &Path, options: &StoreOptions) -> Result<u64, OfflineError> {
    let journal = open_journal(url)?;
    let mut source = File::open(file).map_err(|error| OfflineError::Failed(error.into()))?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let sent = import(journal.as_ref(), &mut source, &settings_for(url, options), now_ms);
    sent.map_err(|error| OfflineError::Failed(error.into()))
}

fn refuse_existing(to: &StoreUrl) -> Result<(), OfflineError> {
    match to {
        StoreUrl::Memory => Err(OfflineError::NoFile(to.clone())),
        StoreUrl::Sqlite(path) if path.exists() => Err(OfflineError::Failed(
            format!("{} exists already: choose another file", path.display()).into(),
        )),
        // The engine itself refuses a second store.
        StoreUrl::Sqlite(_) | StoreUrl::Shared(_) => Ok(()),
    }
}

fn open_file(file: &Path, options: &StoreOptions) -> Result<SqliteStore, OfflineError> {
    Ok(SqliteStore::open(file, options.for_sqlite()).map_err(OpenError::from)?)
}

fn compare(
    one: &SqliteStore,
    other: &SqliteStore,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Moved, OfflineError> {
    let failed = |error: StoreError| OfflineError::Failed(error.into());
    let differs =
        |what: String| OfflineError::Failed(format!("the copy differs from its source: {what}").into());
    let mut moved = Moved::default();
    let sorted = |store: &SqliteStore| -> Result<Vec<_>, OfflineError> {
        let mut streams = store.streams().map_err(failed)?;
        streams.sort_by(|one, other| one.stream.cmp(&other.stream));
        Ok(streams)
    };
    let (ours, theirs) = (sorted(one)?, sorted(other)?);
    let bounds = |of: &[millrace_store::StreamBounds]| -> Vec<_> {
        of.iter().map(|bounds| (bounds.stream.clone(), bounds.start, bounds.next)).collect()
    };
    if bounds(&ours) != bounds(&theirs) {
        return Err(differs("it has other streams".to_owned()));
    }
    for bounds in ours {
        let mut from = bounds.start;
        while from < bounds.next {
            let page = one.read(&bounds.stream, from, PAGE).map_err(failed)?;
            let copied = other.read(&bounds.stream, from, PAGE).map_err(failed)?;
            if page != copied {
                return Err(differs(format!("events of {} from offset {from} on", bounds.stream)));
            }
            moved.events += page.events.len() as u64;
            progress("comparing", moved.events);
            from = Offset(page.through.0.max(from.0) + 1);
        }
    }
    for space in Space::ALL {
        let mut range = KeyRange::all();
        loop {
            let rows = one.scan(space, &range, ROWS).map_err(failed)?;
            if rows != other.scan(space, &range, ROWS).map_err(failed)? {
                return Err(differs(format!("rows of {}", space.as_str())));
            }
            moved.rows += rows.len() as u64;
            let Some(last) = rows.last() else { break };
            range.from = format!("{}\0", last.key);
        }
    }
    Ok(moved)
}

/// A folder for files of this process, removed with the value.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(options: &StoreOptions) -> Result<WorkFolder, OfflineError> {
        use std::os::unix::fs::DirBuilderExt;
        let failed = |error: std::io::Error| OfflineError::Failed(FailureCause::of(error).to_string().into());
        std::fs::create_dir_all(&options.shared.cache).map_err(failed)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = options.shared.cache.join(format!("work-{}-{now}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        Ok(WorkFolder(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A folder that could not be removed only takes space; its name says that it is one of these.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store as a local file, for commands that examine or copy files.
pub struct LocalFile {
    url: StoreUrl,
    /// Keeps the file of a shared store until the value is dropped.
    _work: Option<WorkFolder>,
}

impl LocalFile {
    /// Returns the URL of the file.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }
}

/// Returns a store's own file, or brings a shared store into one that lives as long as the value.
pub fn local_file(url: &StoreUrl, options: &StoreOptions) -> Result<LocalFile, OfflineError> {
    if !matches!(url, StoreUrl::Shared(_)) {
        return Ok(LocalFile { url: url.clone(), _work: None });
    }
    let work = WorkFolder::new(options)?;
    let file = work.path("store.db");
    bring_to_file(url, &file, options)?;
    Ok(LocalFile { url: StoreUrl::Sqlite(file), _work: Some(work) })
}

impl std::fmt::Debug for LocalFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalFile").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use millrace_model::{
        Append, Batch, EventBody, JsonText, NewEvent, Op, Outcome, Partition, Timestamp, TopicKey,
    };

    use super::*;
    use crate::open::{open_shared, open_store};
    use crate::options::SharedSettings;

    fn publish(store: &dyn Store, payload: &str) {
        let stream = TopicKey::parse("main/orders").unwrap().stream(Partition(0));
        let body = Arc::new(EventBody::of(JsonText::parse(payload).unwrap()));
        let append = Append { stream, event: NewEvent { id: None, body }, dedupe_window_ms: 0 };
        let row = Op::Put { space: Space::Kv, key: payload.to_owned(), value: "x".into() };
        let ops = vec![Op::Append(append), row];
        let batch = Batch { nonce: 7, now: Timestamp(1_000), ops, ..Batch::default() };
        assert!(matches!(store.commit(&[batch]).unwrap().as_slice(), [Outcome::Done(_)]));
    }

    #[test]
    fn a_store_moves_to_an_engine_and_back_and_goes_on_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let shared = SharedSettings { cache: at("cache"), ..SharedSettings::default() };
        let options = StoreOptions { shared, ..StoreOptions::default() };
        let file = StoreUrl::Sqlite(at("one.db"));
        let engine: StoreUrl = format!("dir:///{}", at("engine").display()).parse().unwrap();
        let back = StoreUrl::Sqlite(at("two.db"));
        let first = open_store(&file, &options).unwrap();
        publish(first.store.as_ref(), "1");
        publish(first.store.as_ref(), "2");
        let mut steps = BTreeSet::new();
        let mut progress = |step: &str, _: u64| {
            steps.insert(step.to_owned());
        };
        let moved = move_store(&file, &engine, &options, &mut progress).unwrap();
        assert_eq!((moved.events, moved.rows), (2, 2), "while the source is served");
        assert_eq!(steps.len(), 3);
        let again = move_store(&file, &engine, &options, &mut |_, _| {}).unwrap_err().to_string();
        assert!(again.contains("holds a store already"), "{again}");
        // The moved store goes on where it was brought to, and back again.
        let led = open_shared(&engine, &options).unwrap();
        publish(led.store.as_ref(), "3");
        drop(led);
        let StoreUrl::Shared(url) = &engine else { panic!("{engine}") };
        let made = make_snapshot(url, &options).unwrap();
        assert!(made.n > 0 && shared_info(url, &options).unwrap().head >= made.n);
        let moved = move_store(&engine, &back, &options, &mut |_, _| {}).unwrap();
        assert_eq!(moved.events, 3);
        let second = open_store(&back, &options).unwrap();
        publish(second.store.as_ref(), "4");
        assert_eq!(second.store.streams().unwrap()[0].next, Offset(5));
        let nothing = shared_info(
            &SharedUrl::clone(&match "dir:////nowhere/at/all".parse() {
                Ok(StoreUrl::Shared(url)) => url,
                other => panic!("{other:?}"),
            }),
            &options,
        );
        assert!(matches!(nothing, Err(OfflineError::Unreachable(_))), "{nothing:?}");
    }
}
