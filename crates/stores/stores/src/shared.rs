//! Opens stores that several servers share: the engine by its URL, and the copy under the cache folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_journal::{DirectoryJournal, Journal};
use millrace_model::Durability;
use millrace_store::{FailureCause, StoreError};
use millrace_store_journal::{JournalSettings, JournalStore, OpenProgress, SystemEngineClock};
use millrace_store_sqlite::SqliteCopies;
use sha2::{Digest, Sha256};

use crate::open::{OpenError, OpenedStore};
use crate::options::StoreOptions;
use crate::url::{Engine, SharedUrl};

/// How many servers of one machine may use the same cache folder.
const COPIES_MAX: usize = 16;
/// How long a process waits until its last handle has let the copy go: requests to the engine that were under way end
/// after their deadline.
const LET_GO_MAX: Duration = Duration::from_secs(30);
const LET_GO_LOOK: Duration = Duration::from_millis(20);

/// An open shared store: this process follows, and leads when it has taken the lead.
#[derive(Clone, Debug)]
pub struct SharedStore {
    pub store: Arc<JournalStore>,
    /// The durability that every commit reaches.
    pub durability: Durability,
    /// The copy that it has, of those in the cache folder.
    pub copy: CopyNumber,
}

/// Identifies a copy in a cache folder: servers of one machine have one each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyNumber(usize);

/// Opens a shared store to follow it. Waits for an engine that is away, as long as the settings say, and tells
/// `progress` what it waits for. Blocks.
pub fn open_followed(
    url: &SharedUrl,
    options: &StoreOptions,
    progress: &mut dyn OpenProgress,
) -> Result<SharedStore, OpenError> {
    open_any(url, options, (0..COPIES_MAX).collect(), progress)
}

/// Opens a shared store again after a handle of this process has ended. Waits until that handle has let its copy go:
/// with another one beside it, what the engine has lost would not be noticed, and the disk would hold both.
pub fn open_followed_again(
    url: &SharedUrl,
    options: &StoreOptions,
    copy: CopyNumber,
    progress: &mut dyn OpenProgress,
) -> Result<SharedStore, OpenError> {
    let (copies, began) = (copies_at(url, options, copy.0), Instant::now());
    while copies.is_open() && began.elapsed() < LET_GO_MAX {
        if !progress.at("waiting until the last requests of this process have let the local copy go") {
            return Err(millrace_store_journal::OpenError::Stopped.into());
        }
        std::thread::sleep(LET_GO_LOOK);
    }
    let others = (0..COPIES_MAX).filter(|at| *at != copy.0);
    open_any(url, options, std::iter::once(copy.0).chain(others).collect(), progress)
}

fn copies_at(url: &SharedUrl, options: &StoreOptions, at: usize) -> SqliteCopies {
    let name = copy_name(url);
    let file = if at == 0 { format!("{name}.db") } else { format!("{name}-{at}.db") };
    SqliteCopies::new(options.shared.cache.join(file), options.for_sqlite())
}

/// Opens the store with the first copy that nobody else has open.
fn open_any(
    url: &SharedUrl,
    options: &StoreOptions,
    copies: Vec<usize>,
    progress: &mut dyn OpenProgress,
) -> Result<SharedStore, OpenError> {
    let journal = open_journal(url)?;
    let mut last = None;
    for at in copies {
        let copies = Arc::new(copies_at(url, options, at));
        let settings = settings_for(url, options);
        let clock = Arc::new(SystemEngineClock);
        match JournalStore::open(journal.clone(), copies, settings, clock, progress) {
            Ok(store) => {
                let is_replicated = store.fitness().is_replicated;
                let durability = if is_replicated { Durability::Replicated } else { Durability::Fsync };
                return Ok(SharedStore { store: Arc::new(store), durability, copy: CopyNumber(at) });
            }
            // Another server of this machine has this copy.
            Err(millrace_store_journal::OpenError::Store(error @ StoreError::InUse(_))) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    let in_use = last.unwrap_or_else(|| StoreError::InUse(FailureCause::from("no copy is free")));
    Err(OpenError::Store(in_use))
}

/// Opens a shared store for a program that writes to it directly, and takes the lead. Blocks until it is known whether
/// somebody else leads.
///
/// # Errors
///
/// [`StoreError::InUse`] with the leader's address if somebody else leads: use that server instead.
pub(crate) fn open_leading(url: &SharedUrl, options: &StoreOptions) -> Result<OpenedStore, OpenError> {
    let mut told = String::new();
    let mut progress = |text: &str| {
        // An attempt to reach an engine that is away is repeated every second, with the same text.
        if told != text {
            tracing::info!(store = %url, "{text}");
            text.clone_into(&mut told);
        }
        true
    };
    let SharedStore { store, durability, .. } = open_followed(url, options, &mut progress)?;
    let pause = Duration::from_millis(store.settings().follow_ms.max(1));
    let seen = store.status().position.n;
    while !store.try_lead()? {
        let status = store.status();
        // A leader that lives places a record every third of the timeout. The newest record may also be the one by which
        // the leader gave the lead back.
        if status.is_led && status.position.n > seen {
            let leader = status.leader_url.unwrap_or_else(|| "another process".to_owned());
            let text = format!("{leader} leads {url}: use that server, or stop it first");
            return Err(OpenError::Store(StoreError::InUse(FailureCause::from(text))));
        }
        std::thread::sleep(pause);
    }
    Ok(OpenedStore { store, durability_max: durability })
}

pub(crate) fn settings_for(url: &SharedUrl, options: &StoreOptions) -> JournalSettings {
    let defaults = match url.engine() {
        // A request to an object store costs money and tens of milliseconds.
        Engine::Object => JournalSettings {
            lead_timeout_ms: 15_000,
            follow_ms: 500,
            commit_interval_ms: 100,
            ..JournalSettings::default()
        },
        Engine::Directory | Engine::Postgres | Engine::Mongo => JournalSettings::default(),
    };
    let shared = &options.shared;
    JournalSettings {
        url: shared.advertise.clone(),
        lead_timeout_ms: shared.lead_timeout_ms.unwrap_or(defaults.lead_timeout_ms),
        follow_ms: shared.follow_ms.unwrap_or(defaults.follow_ms),
        commit_interval_ms: shared.commit_interval_ms.unwrap_or(defaults.commit_interval_ms),
        store_wait_ms: shared.store_wait_ms,
        snapshot_bytes: shared.snapshot_bytes.unwrap_or(defaults.snapshot_bytes),
        dedupe_ids_max: Some(options.dedupe_ids_max as u64),
        ..defaults
    }
}

/// Opens the journal of a shared store, for tools and tests that use the engine itself. Connects to nothing yet: the
/// engine is looked at when the store is opened.
///
/// # Errors
///
/// [`OpenError::Address`] if the URL is wrong, or names an engine that is not built in.
pub fn open_journal(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    match url.engine() {
        Engine::Directory => Ok(Arc::new(DirectoryJournal::new(folder_of(url)))),
        Engine::Postgres => open_postgres(url),
        Engine::Object => open_object(url),
        Engine::Mongo => open_mongo(url),
    }
}

fn folder_of(url: &SharedUrl) -> &Path {
    Path::new(url.secret_text().strip_prefix("dir:///").unwrap_or_default())
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    let opened = millrace_journal_postgres::PostgresJournal::open(url.secret_text());
    opened.map(|journal| Arc::new(journal) as _).map_err(|error| OpenError::Address(error.to_string()))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    Err(not_built_in(url, "postgres"))
}

#[cfg(feature = "object")]
fn open_object(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    use millrace_journal_object::{ObjectJournal, ObjectUrl};
    let address = |error: &dyn std::fmt::Display| OpenError::Address(error.to_string());
    let parsed = match ObjectUrl::parse(url.secret_text()) {
        Some(parsed) => parsed.map_err(|error| address(&error))?,
        None => return Err(OpenError::Address(format!("{url} is no address of an object store"))),
    };
    ObjectJournal::open(&parsed).map(|journal| Arc::new(journal) as _).map_err(|error| address(&error))
}

#[cfg(not(feature = "object"))]
fn open_object(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    Err(not_built_in(url, "object"))
}

#[cfg(feature = "mongo")]
fn open_mongo(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    use millrace_journal_mongo::{MongoJournal, MongoSettings};
    let address = |error: millrace_journal::JournalError| OpenError::Address(error.to_string());
    let settings = MongoSettings::from_url(url.secret_text()).map_err(address)?;
    MongoJournal::new(settings).map(|journal| Arc::new(journal) as _).map_err(address)
}

#[cfg(not(feature = "mongo"))]
fn open_mongo(url: &SharedUrl) -> Result<Arc<dyn Journal>, OpenError> {
    Err(not_built_in(url, "mongo"))
}

#[cfg(not(all(feature = "postgres", feature = "object", feature = "mongo")))]
fn not_built_in(url: &SharedUrl, feature: &str) -> OpenError {
    OpenError::Address(format!("{url}: this build has no such engine: build it with the feature `{feature}`"))
}

/// Returns the name of the copy's file: the same for the same store, without secrets.
fn copy_name(url: &SharedUrl) -> String {
    let digest = Sha256::digest(url.to_string().as_bytes());
    let hex: String = digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("copy-{hex}")
}

/// Returns the default folder for copies: `millrace-cache` in the working folder.
pub fn default_cache() -> PathBuf {
    PathBuf::from("millrace-cache")
}
