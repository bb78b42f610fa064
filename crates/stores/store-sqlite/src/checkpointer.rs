//! The thread that copies the WAL into the database while the writer goes on committing.
//!
//! It has a connection of its own and takes no turn: SQLite lets a passive checkpoint run beside a writer. What it cannot
//! do beside one is to start the WAL over, because something is always appended meanwhile; that rest is the writer's
//! (`checkpoint`). A store that never writes much never starts the thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::Attempt;
use crate::locks::Locks;

/// A pass that found no more than this leaves little to the writer; another one would hardly make it less.
const REST_FRAMES: i64 = 64;
/// Against a writer that is as fast as the copying: it must wait for the rest some time.
const PASSES_MAX: usize = 3;

#[derive(Debug)]
pub(crate) struct Checkpointer {
    path: PathBuf,
    locks: Arc<Locks>,
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Between the writer and the thread.
#[derive(Debug)]
struct Desk {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing was asked since the writer took over last.
    Idle,
    /// The thread is to copy, or is at it.
    Asked,
    /// The thread is through. The rest is small and the writer's.
    Copied,
    Ended,
}

/// What one checkpoint did, as SQLite tells.
pub(crate) struct Pass {
    /// Somebody else is checkpointing.
    pub(crate) busy: bool,
    /// In the WAL, and those of them that are in the database by now.
    pub(crate) frames: i64,
    pub(crate) copied: i64,
}

/// Readers and writers are not waited for: what one of them still needs stays for the next time.
pub(crate) fn pass(conn: &Connection) -> Attempt<Pass> {
    let mut checkpoint = conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
    let pass = checkpoint
        .query_row([], |row| Ok(Pass { busy: row.get(0)?, frames: row.get(1)?, copied: row.get(2)? }))?;
    Ok(pass)
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the stage is once it is none of `passing`.
    fn wait(&self, passing: &[Stage]) -> Stage {
        let stage = self.changed.wait_while(self.lock(), |stage| passing.contains(stage));
        *stage.unwrap_or_else(PoisonError::into_inner)
    }

    /// Unless the end has come.
    fn set(&self, next: Stage) {
        let mut stage = self.lock();
        if *stage != Stage::Ended {
            *stage = next;
        }
        drop(stage);
        self.changed.notify_all();
    }
}

impl Checkpointer {
    pub(crate) fn new(path: &Path, locks: Arc<Locks>) -> Checkpointer {
        let desk = Desk { stage: Mutex::new(Stage::Idle), changed: Condvar::new() };
        Checkpointer { path: path.to_owned(), locks, desk: Arc::new(desk), thread: Mutex::new(None) }
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.desk.lock()
    }

    /// Waits until the thread is through with what it was asked.
    pub(crate) fn finished(&self) -> Stage {
        self.desk.wait(&[Stage::Asked])
    }

    /// Has the thread copy what the WAL holds. False if there can be no thread: the writer is on its own.
    pub(crate) fn ask(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (path, locks, desk) = (self.path.clone(), self.locks.clone(), self.desk.clone());
            let run = move || run(&path, &locks, &desk);
            *thread = thread::Builder::new().name("millrace-wal".to_owned()).spawn(run).ok();
        }
        if thread.is_some() {
            self.desk.set(Stage::Asked);
        }
        thread.is_some()
    }

    /// The writer has taken over.
    pub(crate) fn rest(&self) {
        self.desk.set(Stage::Idle);
    }

    /// Waits for a copy that is under way. Afterwards no connection but the writer's can checkpoint.
    pub(crate) fn end(&self) {
        *self.desk.lock() = Stage::Ended;
        self.desk.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // One that panicked has raised the flag.
            let _ = thread.join();
        }
    }
}

fn run(path: &Path, locks: &Locks, desk: &Desk) {
    // However this ends, nobody waits for it, and a store whose checkpoint failed is not written to any more.
    let mut failure = Failure { locks, desk, reason: Some("the checkpointer ended unexpectedly".to_owned()) };
    failure.reason = serve(path, locks, desk).err().map(|fault| fault.to_string());
}

fn serve(path: &Path, locks: &Locks, desk: &Desk) -> Attempt<()> {
    let mut conn = None;
    while desk.wait(&[Stage::Idle, Stage::Copied]) == Stage::Asked {
        // Without a connection (no descriptor left, say) nothing was written wrongly: all of it is the writer's.
        conn = conn.or_else(|| connect(path).ok());
        if let Some(conn) = &conn {
            match copy(conn, locks, desk) {
                // The log is as it was. The writer takes over, meets the same and tells.
                Err(fault) if fault.wrote_nothing().is_some() => {}
                copied => copied?,
            }
        }
        desk.set(Stage::Copied);
    }
    Ok(())
}

fn connect(path: &Path) -> Attempt<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    // The WAL is synced before it is copied, the database before the WAL may be overwritten.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(conn)
}

fn copy(conn: &Connection, locks: &Locks, desk: &Desk) -> Attempt<()> {
    let mut before = 0;
    for _ in 0..PASSES_MAX {
        // Frames of a commit that failed are not in what SQLite copies; this is for syncs that failed elsewhere.
        if locks.poisoned().is_some() || *desk.lock() == Stage::Ended {
            return Ok(());
        }
        let pass = pass(conn)?;
        if pass.busy || pass.copied - before <= REST_FRAMES {
            return Ok(());
        }
        before = pass.copied;
    }
    Ok(())
}

/// Poisons when there is a reason to, and ends the thread's part.
struct Failure<'a> {
    locks: &'a Locks,
    desk: &'a Desk,
    reason: Option<String>,
}

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.reason.take() {
            self.locks.raise(&format!("checkpoint: {reason}"));
        }
        *self.desk.lock() = Stage::Ended;
        self.desk.changed.notify_all();
    }
}
