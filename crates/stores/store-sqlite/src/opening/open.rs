//! Opening a store: checks that it is a Millrace store of a known version, and loads its index.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use millrace_store::{FailureCause, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::dedupe::recent_ids::Dedupe;
use crate::dedupe::saved_ids;
use crate::error::{Attempt, SqliteFault, locked};
use crate::files::file_error::FileError;
use crate::files::{folder, leftovers, private};
use crate::locks::file_claim::{FileClaim, SETTLE_MAX, SETTLE_PAUSE, Unclaimed};
use crate::locks::lock_folder::{self, GateEntry, Locks};
use crate::locks::serve_lock::ServeLock;
use crate::opening::load;
use crate::options::SqliteOptions;
use crate::reading::index::Index;
use crate::reading::pool;
use crate::rows::schema::{self, MIGRATIONS, Refused};
use crate::rows::tables::Damaged;
use crate::store_core::{LoadedStore, StoreCore};
use crate::upkeep::checkpoint::CHECKPOINT_OVERDUE_TIMES;
use crate::writing::front::Front;
use crate::writing::transaction::Writer;

/// Older versions of SQLite could corrupt a database in WAL mode.
const SQLITE_VERSION_MIN: (i32, &str) = (3_051_003, "3.51.3");
/// How many statements the writer keeps prepared: enough for all of them.
const STATEMENTS_MAX: usize = 256;
/// A usual group commit fits; pages of a larger one go to the WAL early, and only cost a second read.
const CACHE_KIB: i64 = 8 << 10;
const PAGE_BYTES: u64 = 4096;

/// The kind of process that opens a store. A store has any number of sessions, and one server.
#[derive(Debug)]
pub(crate) enum Opener {
    Session,
    /// The handle keeps the lock until it is closed.
    Server(ServeLock),
}

/// Opens the store at its real path. The caller has resolved that path once: a link that is switched meanwhile must not
/// lead a server's lock to one store and the server to another.
pub(crate) fn open(path: &Path, options: SqliteOptions, opener: Opener) -> Result<StoreCore, StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN.0 {
        let (found, needed) = (rusqlite::version(), SQLITE_VERSION_MIN.1);
        return Err(StoreError::Unusable(
            format!("SQLite {found} is linked, {needed} or newer is needed").into(),
        ));
    }
    let parent = folder::parent_of(path);
    folder::create(parent).map_err(|error| SqliteFault::from(error).unusable(path))?;
    let (locks, conn) = enter(path, &options, &opener)?;
    let loaded = {
        // Nobody writes while this lock is held: everything read here is of one moment, and the first opener writes the
        // key of the hashes.
        let _write_lock = locks.write_lock().map_err(|error| SqliteFault::from(error).unusable(path))?;
        let read = folder::sync(parent).map_err(SqliteFault::from).and_then(|()| load_all(&conn, &options));
        let (index, dedupe) = read.map_err(|fault| fault.unusable(path))?;
        let lookups = pool::open(path).map_err(|error| SqliteFault::from(error).unusable(path))?;
        let damaged = if options.is_copy { Damaged::Refused } else { Damaged::Empty };
        let front_lookups = pool::open(path).map_err(|error| SqliteFault::from(error).unusable(path))?;
        let (writer, front) = (Writer::new(conn, lookups, damaged), Front::new(front_lookups, damaged));
        LoadedStore { writer, front, dedupe, index }
    };
    let serve_lock = match opener {
        Opener::Session => None,
        Opener::Server(lock) => Some(lock),
    };
    Ok(StoreCore::assemble(path, options, locks, serve_lock, loaded))
}

/// Enters the gate: nobody else opens the store or begins to write until its tables have this build's version.
fn enter(path: &Path, options: &SqliteOptions, opener: &Opener) -> Result<(Locks, Connection), StoreError> {
    let entry = enter_claimed(path, opener)?;
    let refused = |refused| explain(path, refused);
    let mut conn = connect(path, options).map_err(refused)?;
    // Recovery must come before any write: a migration must not build on frames that are only in the page cache.
    recover(&conn, &entry.locks);
    let found = schema::version(&conn, MIGRATIONS).map_err(refused)?;
    if found != MIGRATIONS.len() {
        if !entry.alone {
            return Err(not_alone(path, found));
        }
        if let Some(reason) = entry.locks.poisoned() {
            return Err(StoreError::Poisoned(reason.into()));
        }
        schema::migrate(&mut conn, MIGRATIONS).map_err(refused)?;
    }
    let locks = entry.let_in().map_err(|error| SqliteFault::from(error).unusable(path))?;
    Ok((locks, conn))
}

/// Holds the gate and a claim on the file that has the name. Makes the file if there is none.
fn enter_claimed(path: &Path, opener: &Opener) -> Result<GateEntry, StoreError> {
    let settled = Instant::now() + SETTLE_MAX;
    loop {
        let mut entry = Locks::enter(path)?;
        leftovers::refuse(path)?;
        private::refuse_foreign(path)?;
        if is_missing_or_empty(path) {
            if !entry.alone {
                return Err(not_alone(path, 0));
            }
            if let Some(reason) = &entry.locks.to_recover {
                return Err(went_missing(path, reason));
            }
            private::create_store(path)?;
        }
        match claim(path, entry.alone, opener).map_err(FileError::io(path))? {
            Ok(claim) => {
                entry.locks.claim = claim;
                return Ok(entry);
            }
            Err(_) if Instant::now() < settled => drop(entry),
            Err(unclaimed) => return Err(FileError::unclaimed(path, unclaimed).into()),
        }
        thread::sleep(SETTLE_PAUSE);
    }
}

fn claim(path: &Path, alone: bool, opener: &Opener) -> io::Result<Result<Option<FileClaim>, Unclaimed>> {
    let claim = match FileClaim::acquire(path, alone)? {
        Ok(claim) => claim,
        Err(unclaimed) => return Ok(Err(unclaimed)),
    };
    if let (Some(claim), Opener::Server(_)) = (&claim, opener)
        && let Err(served) = claim.serve()?
    {
        return Ok(Err(served));
    }
    Ok(Ok(claim))
}

/// Returns whether opening the file would make a new store. If the file cannot be examined, SQLite will say why.
pub(crate) fn is_missing_or_empty(path: &Path) -> bool {
    match path.metadata() {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection, Refused> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_millis(options.busy_timeout_ms))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Before the first change: a foreign file is left as it is, and so is its log and that of a damaged store.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema::version(&conn, MIGRATIONS)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    let wal_bytes_max = options.wal_bytes.saturating_mul(CHECKPOINT_OVERDUE_TIMES);
    conn.pragma_update(None, "journal_size_limit", i64::try_from(wal_bytes_max).unwrap_or(i64::MAX))?;
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    if let Some(bytes) = options.file_bytes_max {
        let pages = i64::try_from(bytes / PAGE_BYTES).unwrap_or(i64::MAX);
        conn.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(conn)
}

/// After a failed write the WAL may hold frames that are only in the page cache. Copying them into the database and
/// syncing it makes everything that is about to be read durable. Until that succeeds, the store can be read but not
/// written.
fn recover(conn: &Connection, locks: &Locks) {
    let Some(earlier) = &locks.to_recover else { return };
    let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    let reason = match emptied.map_err(|error| error.to_string()) {
        Ok(true) => earlier.clone(),
        Ok(false) => match locks.lower() {
            Ok(()) => return,
            Err(error) => format!("{earlier}; recovered, but the flag cannot be lowered: {error}"),
        },
        Err(error) => format!("{earlier}; and again while recovering: {error}"),
    };
    locks.raise(&reason);
}

fn load_all(conn: &Connection, options: &SqliteOptions) -> Attempt<(Index, Dedupe)> {
    let key = saved_ids::hash_key(conn)?;
    let transaction = conn.unchecked_transaction()?;
    let index = load::load(&transaction)?;
    let dedupe = saved_ids::load(&transaction, key, &index, options)?;
    Ok((index, dedupe))
}

/// Tables are made and changed only while nobody else has the store open: another process would go on writing rows of
/// its own version.
fn not_alone(path: &Path, found: usize) -> StoreError {
    let path = path.display();
    let text = match found {
        0 => format!(
            "{path} was removed or emptied while another process has it open: stop every process that has it open first"
        ),
        found => format!(
            "{path} has schema version {found}, this build writes {}, and another process, of an older Millrace, has it \
             open: stop every process that has it open, then the next one to open it brings it forward",
            MIGRATIONS.len()
        ),
    };
    StoreError::Unusable(text.into())
}

/// A raised flag proves that there was a store with this name. A supervisor that restarts the server must not begin
/// with an empty store in its place.
fn went_missing(path: &Path, reason: &str) -> StoreError {
    let folder = lock_folder::folder(path);
    let text = format!(
        "{} is missing or empty, and the last process that had it open stopped writing: {reason}. Put the file back; or \
         remove {} to begin with a new store",
        path.display(),
        folder.display()
    );
    StoreError::Unusable(text.into())
}

fn explain(path: &Path, refused: Refused) -> StoreError {
    let shown = path.display();
    StoreError::Unusable(match refused {
        Refused::Foreign => format!("{shown} is not a Millrace store; choose another path").into(),
        Refused::Newer { found } => format!(
            "{shown} has schema version {found}, this build knows up to {}; use the Millrace that wrote it or a newer one",
            MIGRATIONS.len()
        )
        .into(),
        Refused::Failed(error) if SqliteFault::is_locked(&error) => locked(path, error),
        Refused::Failed(error) if SqliteFault::is_damage(&error) => FailureCause::new(
            format!("{shown} is not a Millrace store, or damaged at its head ({error})"),
            error,
        ),
        Refused::Failed(error) => FailureCause::new(format!("{shown}: {error}"), error),
    })
}
