//! Opening: is it ours, is it of a version we know, and what does it hold.

use std::path::Path;
use std::time::Duration;

use millrace_store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::checkpoint::CHECKPOINT_OVERDUE_TIMES;
use crate::dedupe::Dedupe;
use crate::dedupe_load;
use crate::error::{Attempt, Fault};
use crate::folder;
use crate::index::Index;
use crate::load;
use crate::locks::Locks;
use crate::options::SqliteOptions;
use crate::pool;
use crate::schema::{self, MIGRATIONS, Refused};
use crate::store::SqliteStore;
use crate::write::Writer;

/// Before this one, SQLite could corrupt a database in WAL mode.
const SQLITE_VERSION_MIN: (i32, &str) = (3_051_003, "3.51.3");
/// Statements the writer keeps prepared: all of them.
const STATEMENTS_MAX: usize = 256;
/// A usual group commit fits; the pages of a larger one go to the WAL early, which costs nothing but a second look.
const CACHE_KIB: i64 = 8 << 10;
const PAGE_BYTES: u64 = 4096;

pub(crate) fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN.0 {
        let (found, needed) = (rusqlite::version(), SQLITE_VERSION_MIN.1);
        return Err(StoreError::Unusable(format!("SQLite {found} is linked, {needed} or newer is needed")));
    }
    let parent = folder::parent_of(path);
    let prepare = folder::create(parent).and_then(|()| Locks::open(path));
    let locks = prepare.map_err(|error| Fault::from(error).unusable(path))?;
    let (index, writer) = {
        // One opener at a time, and no writer: creation and migration are transactions like any other.
        let _turn = locks.turn().map_err(|error| Fault::from(error).unusable(path))?;
        let conn = connect(path, &options).map_err(|refused| explain(path, refused))?;
        recover(&conn, &locks);
        let loaded = folder::sync(parent).map_err(Fault::from).and_then(|()| load_all(&conn, &options));
        let (index, dedupe) = loaded.map_err(|fault| fault.unusable(path))?;
        let lookups = pool::open(path).map_err(|error| Fault::from(error).unusable(path))?;
        (index, Writer::new(conn, lookups, dedupe))
    };
    Ok(SqliteStore::assemble(path, options, locks, writer, index))
}

fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection, Refused> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_millis(options.busy_timeout_ms))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Before the first change: a stranger's file is left as it is.
    schema::version(&conn, MIGRATIONS)?;
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
    schema::migrate(&mut conn, MIGRATIONS)?;
    Ok(conn)
}

/// After a failed write the WAL may hold frames that only the page cache has. Copying them into the database and syncing
/// that makes what we are about to read durable. While it does not succeed, the store can be read but not written.
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
    let key = dedupe_load::hash_key(conn)?;
    let transaction = conn.unchecked_transaction()?;
    let index = load::load(&transaction)?;
    let dedupe = dedupe_load::load(&transaction, key, &index, options)?;
    Ok((index, dedupe))
}

fn explain(path: &Path, refused: Refused) -> StoreError {
    let path = path.display();
    StoreError::Unusable(match refused {
        Refused::Foreign => format!("{path} is not a Millrace store; choose another path"),
        Refused::Newer { found } => format!(
            "{path} has schema version {found}, this build knows up to {}; use the Millrace that wrote it or a newer one",
            MIGRATIONS.len()
        ),
        Refused::Failed(error) if Fault::is_damage(&error) => {
            format!("{path} is not a Millrace store, or damaged at its head ({error})")
        }
        Refused::Failed(error) => format!("{path}: {error}"),
    })
}
