//! The tables, and the migrations from every older version to this one.

use rusqlite::{Connection, TransactionBehavior};

/// «Mlrc»: distinguishes a Millrace store from any other SQLite file.
pub(crate) const APPLICATION_ID: i32 = 0x4d6c_7263;

/// Migration `n` leads from version `n` to version `n + 1`. Released migrations are never changed; new ones are
/// appended.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6];

/// The version that this build works with. Opening an older store migrates it to this version.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

const V1: &str = "
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    id NOT NULL,
    brought INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT,
    headers BLOB,
    root_event_id,
    chain_depth INTEGER NOT NULL,
    causation,
    correlation,
    crc INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE commits (c INTEGER PRIMARY KEY, seq INTEGER NOT NULL, runs BLOB NOT NULL);
CREATE TABLE loc (
    stream INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    brought INTEGER NOT NULL,
    first_ts INTEGER NOT NULL,
    last_ts INTEGER NOT NULL,
    pieces BLOB NOT NULL,
    PRIMARY KEY (stream, first_offset)
) WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    start INTEGER NOT NULL,
    folded INTEGER NOT NULL,
    reclaimed INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    last_ts INTEGER NOT NULL,
    dropped INTEGER NOT NULL
);
CREATE TABLE ids (n INTEGER PRIMARY KEY, count INTEGER NOT NULL, last_ts INTEGER NOT NULL, hashes BLOB NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE quarantine (seq INTEGER PRIMARY KEY, stream INTEGER NOT NULL, offset INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE topics (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE groups (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE cursors (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE due (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE due_ids (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// Compaction of topics: below `compacted_to`, events may be missing.
const V2: &str = "ALTER TABLE streams ADD COLUMN compacted_to INTEGER NOT NULL DEFAULT 1";

/// Durable handlers and state.
const V3: &str = "
CREATE TABLE off_priority (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE handlers (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE lanes (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE claims (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE finished (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE schedules (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE heads (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE history (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE state_commits (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE schemas (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
ALTER TABLE streams ADD COLUMN dropped_at INTEGER NOT NULL DEFAULT 0;
";

/// Checksums for the rows of the small tables and of `streams`. Older rows have none and are accepted as they are.
const V4: &str = "
ALTER TABLE topics ADD COLUMN crc INTEGER;
ALTER TABLE groups ADD COLUMN crc INTEGER;
ALTER TABLE cursors ADD COLUMN crc INTEGER;
ALTER TABLE tries ADD COLUMN crc INTEGER;
ALTER TABLE due ADD COLUMN crc INTEGER;
ALTER TABLE due_ids ADD COLUMN crc INTEGER;
ALTER TABLE kv ADD COLUMN crc INTEGER;
ALTER TABLE off_priority ADD COLUMN crc INTEGER;
ALTER TABLE handlers ADD COLUMN crc INTEGER;
ALTER TABLE lanes ADD COLUMN crc INTEGER;
ALTER TABLE claims ADD COLUMN crc INTEGER;
ALTER TABLE finished ADD COLUMN crc INTEGER;
ALTER TABLE dead_letters ADD COLUMN crc INTEGER;
ALTER TABLE sessions ADD COLUMN crc INTEGER;
ALTER TABLE schedules ADD COLUMN crc INTEGER;
ALTER TABLE heads ADD COLUMN crc INTEGER;
ALTER TABLE history ADD COLUMN crc INTEGER;
ALTER TABLE state_commits ADD COLUMN crc INTEGER;
ALTER TABLE schemas ADD COLUMN crc INTEGER;
ALTER TABLE streams ADD COLUMN crc INTEGER;
";

/// Keeps an id taken after compaction or retention has removed its event.
const V5: &str = "
CREATE TABLE gone_ids (
    seq INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    id NOT NULL,
    crc INTEGER NOT NULL
);
";

/// No table changes. Rows of `due` whose key begins with `t` wait for the end of a duration: a build that does not know
/// them would deliver them at once, so it must not open the store.
const V6: &str = "";

/// Why a file is not migrated to the current version.
#[derive(Debug)]
pub(crate) enum Refused {
    Foreign,
    Newer { found: usize },
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Refused {
        Refused::Failed(error)
    }
}

/// Returns the version of a file, 0 for a new one. Changes nothing.
pub(crate) fn version(conn: &Connection, migrations: &[&str]) -> Result<usize, Refused> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let found = usize::try_from(number("PRAGMA user_version")?).unwrap_or(usize::MAX);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if !is_new && application != i64::from(APPLICATION_ID) {
        return Err(Refused::Foreign);
    }
    if found > migrations.len() { Err(Refused::Newer { found }) } else { Ok(found) }
}

/// Returns the present version inside a transaction that has begun: this costs nothing, because the page with the
/// version has been read already.
pub(crate) fn version_inside(conn: &Connection) -> rusqlite::Result<usize> {
    let found = conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get::<_, i64>(0))?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// Runs all missing migrations in one transaction: a crash leaves the old version or the new one. The caller must be
/// alone.
pub(crate) fn migrate(conn: &mut Connection, migrations: &[&str]) -> Result<(), Refused> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction, migrations)?;
    if found == migrations.len() {
        return Ok(());
    }
    for step in &migrations[found..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(conn: &Connection) -> i64 {
        conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_older_store_is_brought_forward_step_by_step() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        conn.execute("INSERT INTO kv (key, value) VALUES ('k', x'01')", []).unwrap();
        let next = [MIGRATIONS, &["ALTER TABLE kv ADD COLUMN a", "UPDATE kv SET a = 7"]].concat();
        migrate(&mut conn, &next).unwrap();
        assert_eq!(version(&conn), MIGRATIONS.len() as i64 + 2);
        assert_eq!(conn.query_row("SELECT a FROM kv", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        migrate(&mut conn, &next).unwrap();
    }

    #[test]
    fn a_failed_step_leaves_the_old_version() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        let broken = [MIGRATIONS, &["CREATE TABLE extra (x)", "not SQL"]].concat();
        assert!(matches!(migrate(&mut conn, &broken), Err(Refused::Failed(_))));
        assert_eq!(version(&conn), MIGRATIONS.len() as i64);
        let left: i64 = conn
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0);
    }

    #[test]
    fn newer_and_foreign_files_are_refused() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &[V1, "SELECT 1"]).unwrap();
        assert!(matches!(migrate(&mut conn, &[V1]), Err(Refused::Newer { found: 2 })));
        let mut foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("CREATE TABLE mine (x)").unwrap();
        assert!(matches!(migrate(&mut foreign, MIGRATIONS), Err(Refused::Foreign)));
    }

    #[test]
    fn every_space_has_its_table() {
        for space in millrace_model::Space::ALL {
            let table = format!("CREATE TABLE {} (key TEXT PRIMARY KEY", space.as_str());
            let made = MIGRATIONS.iter().filter(|step| step.contains(&table)).count();
            assert_eq!(made, 1, "{table}");
            assert!(V4.contains(&format!("ALTER TABLE {} ADD COLUMN crc", space.as_str())));
        }
    }
}
