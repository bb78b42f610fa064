//! Read connections: a limited number, lent for a call each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, OpenFlags};

use crate::error::Attempt;

/// Readers never wait for the writer; this covers recovery and the moments in which the log starts over.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many statements each connection keeps prepared.
const STATEMENTS_MAX: usize = 96;

#[derive(Debug)]
pub(crate) struct Pool {
    path: PathBuf,
    readers_max: usize,
    idle: Mutex<Idle>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    lent: usize,
}

impl Pool {
    pub(crate) fn new(path: &Path, readers_max: usize) -> Pool {
        Pool {
            path: path.to_owned(),
            readers_max: readers_max.max(1),
            idle: Mutex::new(Idle::default()),
            returned: Condvar::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lends a connection to `work`. Waits when all are lent.
    pub(crate) fn lend<T>(&self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Attempt<T> {
        let mut idle = self.idle.lock();
        self.returned.wait_while(&mut idle, |idle| idle.lent >= self.readers_max);
        idle.lent += 1;
        let connection = idle.connections.pop();
        drop(idle);
        let _lent = Lent(self);
        let connection = match connection {
            Some(connection) => connection,
            None => open(&self.path)?,
        };
        let done = work(&connection);
        self.idle.lock().connections.push(connection);
        done
    }
}

/// Counts as lent until dropped, also when opening fails or the work panics.
struct Lent<'a>(&'a Pool);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.idle.lock().lent -= 1;
        self.0.returned.notify_one();
    }
}

/// Opens a connection that can only read.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}
