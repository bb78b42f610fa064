//! The file as a whole: which process has it, whether it is a Millrace store, whether SQLite finds it sound, and
//! whether the small tables can be read.

use std::fs::{File, TryLockError};
use std::path::Path;

use millrace_model::{Findings, Space};
use rusqlite::Connection;

use super::RESTORE;
use crate::dedupe::saved_ids;
use crate::error::{Attempt, SqliteFault};
use crate::files::private;
use crate::locks::lock_folder;
use crate::offline::restore::{REPLACED, RESTORING};
use crate::rows::schema::{self, MIGRATIONS, Refused};
use crate::rows::tables;

/// How many problems SQLite lists before it stops its integrity check.
const INTEGRITY_LINES_MAX: u32 = 100;

/// Reports whether the store has stopped writing, and which process serves it.
pub(super) fn locks(path: &Path, findings: &mut Findings) {
    let folder = lock_folder::folder(path);
    // Without a lock folder no process has opened this file yet, as is usual for a backup.
    if let Some(reason) =
        File::open(folder.join("poison")).ok().and_then(|file| lock_folder::raised_text(&file))
    {
        findings.problem(
            folder.join("poison").display().to_string(),
            format!("a write failed and nothing is written any more: {reason}"),
            "look at the disk (space, errors), then restart every process that has the store open",
        );
    }
    let Ok(serve) = File::open(folder.join("serve")) else { return };
    if let Err(TryLockError::WouldBlock) = serve.try_lock_shared() {
        let holder = std::io::read_to_string(&serve).unwrap_or_default();
        let what = format!("is served by process {}", holder.trim());
        findings.note(path.display().to_string(), what, "this is how it was when it was looked at");
    }
}

/// Reports whether other users can reach the files, and the files that an interrupted restore left beside them.
pub(super) fn beside(path: &Path, findings: &mut Findings) {
    if let Some(mode) = private::open_to_others(path) {
        let what = format!("can be opened by others on this machine (mode {mode:04o})");
        findings.note(path.display().to_string(), what, "it holds every event: `chmod 600` it and its -wal");
    }
    let folder = lock_folder::folder(path);
    if let Some(mode) = private::open_to_others(&folder) {
        let what = format!("can be entered by others (mode {mode:04o}), who could stop every commit");
        findings.note(
            folder.display().to_string(),
            what,
            "`chmod 700` it: a server refuses it if others can write there",
        );
    }
    for name in [REPLACED, RESTORING].map(|more| lock_folder::beside(path, more)) {
        if name.symlink_metadata().is_ok() {
            let what = "is what a restore that was cut short left: the store does not need it";
            findings.note(name.display().to_string(), what, "remove it, or restore again");
        }
    }
}

/// Returns the schema version, if this build can read that version.
pub(super) fn version(conn: &Connection, findings: &mut Findings) -> Option<usize> {
    let newest = MIGRATIONS.len();
    let (what, advice) = match schema::version(conn, MIGRATIONS) {
        Ok(0) => ("holds no store: it is empty".to_owned(), "choose another file, or restore a backup to it"),
        Ok(found) if found < newest => {
            let what = format!("has schema version {found}, this build writes {newest}");
            findings.problem(
                "schema",
                what,
                "serve or restore it with this build to bring it forward, then look again",
            );
            return None;
        }
        Ok(found) => return Some(found),
        Err(Refused::Foreign) => ("is no Millrace store".to_owned(), "choose another file"),
        Err(Refused::Newer { found }) => (
            format!("has schema version {found}, this build knows up to {newest}"),
            "use the Millrace that wrote it or a newer one",
        ),
        Err(Refused::Failed(error)) if SqliteFault::needs_rollback(&error) => (
            "cannot be read before a change of the file that was cut short is undone".to_owned(),
            "start a server on it once, which undoes it, then look again",
        ),
        Err(Refused::Failed(error)) => (format!("cannot be read as a store: {error}"), RESTORE),
    };
    findings.problem("schema", what, advice);
    None
}

pub(super) fn integrity(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    let mut check = conn.prepare(&format!("PRAGMA integrity_check({INTEGRITY_LINES_MAX})"))?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            findings.problem("the file", format!("SQLite reports: {line}"), RESTORE);
        }
    }
    Ok(())
}

/// Checks the key of the hashes of remembered ids.
pub(super) fn hash_key(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    match saved_ids::stored_key(conn) {
        Err(SqliteFault::DamagedRow(table, row)) => {
            let what = "its checksum does not match, or it is gone: remembered ids cannot be told";
            findings.problem(format!("table {table}, row {row:?}"), what, RESTORE);
            Ok(())
        }
        looked => looked.map(|_| ()),
    }
}

pub(super) fn small_table(
    conn: &Connection,
    space: Space,
    findings: &mut Findings,
    mut visit: impl FnMut(&str, &[u8]),
) -> Attempt<()> {
    let table = space.as_str();
    let mut select = conn.prepare(&format!("SELECT key, value, crc FROM {table} ORDER BY key"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        match (row.get_ref(0)?.as_str(), row.get_ref(1)?.as_blob()) {
            (Ok(key), Ok(value)) if !tables::is_whole(space, key, value, row.get(2)?) => {
                findings.problem(
                    format!("table {table}, row {key:?}"),
                    "its checksum does not match",
                    RESTORE,
                );
            }
            (Ok(key), Ok(value)) => visit(key, value),
            (key, _) => {
                let place = format!("table {table}, row {:?}", key.unwrap_or("?"));
                findings.problem(place, "is not text and bytes", RESTORE);
            }
        }
    }
    Ok(())
}
